"""Kinds of locks as data: which scripts take, keep and give up their keys, and how their calls are packed; no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioredlock_ng._scripts.catalogue import (
    ACQUIRE,
    ACQUIRE_EACH,
    ACQUIRE_GUARDED,
    CALLED,
    COMMANDS,
    CONFIRM,
    EXTEND,
    FORCE_RELEASE,
    HAND_OVER_EACH,
    INSPECT,
    LEAVE,
    MARKER,
    OF_QUEUES,
    RELEASE,
    RELEASE_EACH,
    REPAIR,
    SCRIPTS,
    STAND,
    WATCH,
    needed,
)
from aioredlock_ng._scripts.form import Form
from aioredlock_ng._scripts.requests import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._scripts.script import Script

__all__ = [
    "CALLED",
    "COMMANDS",
    "FENCES",
    "FORCE_RELEASE",
    "LEAVE",
    "MARKER",
    "MARKER_KEY",
    "MUTEX",
    "OF_QUEUES",
    "SCRIPTS",
    "STAND",
    "Labels",
    "LockKind",
    "guarded_mutex",
    "needed",
]

MARKER_KEY: Final = b"aioredlock_ng:marker"
"""Names the server process whose memory it vouches for; see marker.lua."""

FENCES: Final = b"aioredlock_ng:fences"
"""The fence counters: a sorted set, slots by their highest fence."""


Labels = tuple[tuple[bytes, ...], tuple[bytes | int, ...]]
"""The keys of labels, and for each its life in milliseconds and its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockKind:
    """A kind of lock.

    Attributes:
        fencing: Its leases have fences.
        repairing: Its keys may be set again where they are lost: with fences and behind the guard only.
        vouch: The guard's word of a command; empty without a guard.
        counters: The key of the fence counters.
        acquire_one: Acquire of one key: key, token and ttl vary, with fencing the fence and the slot too.
        release_one: Release of one key: key and token vary.
    """

    acquire: Script
    extend: Script
    watch: Script
    release: Script
    inspect: Script
    confirm: Script
    repair: Script
    acquire_one: Form
    release_one: Form
    fencing: bool = False
    vouch: bytes = b""
    counters: bytes = FENCES

    @property
    def repairing(self) -> bool:
        """See above."""
        return self.fencing and self.vouch != b""

    def acquiring(
        self,
        keys: tuple[bytes, ...],
        slots: tuple[bytes, ...],
        token: bytes,
        ttl: bytes,
        fence: int,
        claim: bytes = b"",
        *,
        tell_counter: bool = False,
    ) -> Command:
        """Return the command that takes all keys.

        Args:
            keys: The keys.
            slots: Their slots among the fence counters.
            token: The token of the attempt.
            ttl: Milliseconds, in decimal.
            fence: The proposed fence; ignored without fencing.
            claim: What a waiter says of itself, see parts/queue.lua.
            tell_counter: Ask for the counter that the fence replaces.
        """
        if not self.fencing and not self.vouch:
            if len(keys) > 1 or claim:
                return Command(self.acquire, keys, (token, ttl, claim))
            return Command(self.acquire, None, (), None, self.acquire_one, (keys[0], token, ttl))
        word = b"%d" % fence if self.fencing else b""
        tell = b"1" if tell_counter and self.fencing else b""
        if len(keys) > 1 or claim or tell:
            args = (token, ttl, self.vouch, word, claim, tell, *slots)
            return Command(self.acquire, (*keys, MARKER_KEY, self.counters), args)
        return Command(
            self.acquire, None, (), None, self.acquire_one, (keys[0], token, ttl, word, slots[0])
        )

    def confirming(
        self, keys: tuple[bytes, ...], slots: tuple[bytes, ...], token: bytes, fence: int
    ) -> Command:
        """The second round of an acquire: the same keys under a higher fence."""
        return Command(self.confirm, (*keys, self.counters), (token, fence, *slots))

    def repairing_of(
        self, keys: tuple[bytes, ...], slots: tuple[bytes, ...], token: bytes, ttl: int, fence: int
    ) -> Command:
        """Set missing keys again, and lift the counters to the fence."""
        return Command(
            self.repair,
            (*keys, MARKER_KEY, self.counters),
            (token, ttl, self.vouch, fence, *slots),
            tracked=True,
        )

    def force_releasing(
        self,
        keys: tuple[bytes, ...],
        slots: tuple[bytes, ...],
        fence: int,
        tokens: tuple[bytes, ...],
        *,
        any_key: bool = False,
    ) -> Command:
        """Delete keys that hold one of these tokens, so that their holder does not set them again.

        A key of another type, or such a string without expiry, is refused unless `any_key` is True.
        """
        args: list[bytes | int] = [len(tokens), int(any_key), *tokens]
        if self.fencing:
            return Command(FORCE_RELEASE, (*keys, self.counters), (*args, fence, *slots))
        return Command(FORCE_RELEASE, keys, tuple(args))

    def extending(self, keys: tuple[bytes, ...], tokens: Sequence[bytes], ttl: int) -> Command:
        """Renew the keys that hold their tokens, and be told of changes."""
        return Command(self.extend, keys, (ttl, *tokens), tracked=True)

    def watching(
        self, keys: tuple[bytes, ...], tokens: tuple[bytes, ...], labels: Labels = ((), ())
    ) -> Command:
        """Ask who holds the keys, and be told of changes; with labels, write them beside the keys that hold their tokens."""
        return Command(self.watch, (*keys, *labels[0]), (*tokens, *labels[1]), tracked=True)

    def inspecting(
        self, keys: tuple[bytes, ...], label_keys: tuple[bytes, ...] = (), *, queues: bool = False
    ) -> Command:
        """Ask who holds the keys, and for how long.

        Args:
            keys: The keys.
            label_keys: The keys of their labels, to be told what these say.
            queues: Also ask how many wait for each key.
        """
        args = (len(keys), 1) if queues else (len(keys),) if label_keys else ()
        return Command(self.inspect, (*keys, *label_keys), args)

    def releasing(
        self,
        keys: tuple[bytes, ...],
        token: bytes,
        owed_until: float,
        label_keys: tuple[bytes, ...] = (),
    ) -> Command:
        """Delete those keys that hold the token, and their labels."""
        if label_keys:
            return Command(self.release, (*keys, *label_keys), (token, len(keys)), owed_until)
        if len(keys) > 1:
            return Command(self.release, keys, (token,), owed_until)
        return Command(self.release, None, (), owed_until, self.release_one, (keys[0], token))


_RELEASE_ONE = Form(RELEASE, 1, (None, None), RELEASE_EACH)


def _mutex(
    acquire: Script,
    acquire_one: Form,
    *,
    fencing: bool = False,
    vouch: bytes = b"",
    counters: bytes = FENCES,
) -> LockKind:
    return LockKind(
        acquire=acquire,
        extend=EXTEND,
        watch=WATCH,
        release=RELEASE,
        inspect=INSPECT,
        confirm=CONFIRM,
        repair=REPAIR,
        acquire_one=acquire_one,
        release_one=_RELEASE_ONE,
        fencing=fencing,
        vouch=vouch,
        counters=counters,
    )


MUTEX: Final = _mutex(
    ACQUIRE, Form(ACQUIRE, 1, (None, None, None), ACQUIRE_EACH, (b"0", b""), HAND_OVER_EACH)
)
"""One holder at a time: plain `SET NX PX`."""


def guarded_mutex(*, fencing: bool, vouch: bytes, counters: bytes = FENCES) -> LockKind:
    """One holder at a time, with fences, or behind the recovery guard (`vouch` is its word), or both."""
    words = (None, MARKER_KEY, counters, None, None, vouch, None, b"", b"", None)
    acquire_one = Form(ACQUIRE_GUARDED, 3, words, ACQUIRE_EACH, (b"2", vouch), HAND_OVER_EACH)
    return _mutex(ACQUIRE_GUARDED, acquire_one, fencing=fencing, vouch=vouch, counters=counters)
