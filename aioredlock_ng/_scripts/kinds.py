"""Kinds of locks as data: which scripts take, keep and give up their keys, and how their calls are packed; no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aioredlock_ng._scripts import Command, Form, Script, replies

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
            return Command(self.acquire, (*keys, MARKER_KEY, FENCES), args)
        return Command(self.acquire, None, (), None, self.acquire_one, (keys[0], token, ttl, word, slots[0]))

    def confirming(self, keys: tuple[bytes, ...], slots: tuple[bytes, ...], token: bytes, fence: int) -> Command:
        """The second round of an acquire: the same keys under a higher fence."""
        return Command(self.confirm, (*keys, FENCES), (token, fence, *slots))

    def repairing_of(self, keys: tuple[bytes, ...], slots: tuple[bytes, ...], token: bytes, ttl: int, fence: int) -> Command:
        """Set missing keys again, and lift the counters to the fence."""
        return Command(self.repair, (*keys, MARKER_KEY, FENCES), (token, ttl, self.vouch, fence, *slots), tracked=True)

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
            return Command(FORCE_RELEASE, (*keys, FENCES), (*args, fence, *slots))
        return Command(FORCE_RELEASE, keys, tuple(args))

    def watching(self, keys: tuple[bytes, ...], tokens: tuple[bytes, ...], labels: Labels = ((), ())) -> Command:
        """Ask who holds the keys, and be told of changes; with labels, write them beside the keys that hold their tokens."""
        return Command(self.watch, (*keys, *labels[0]), (*tokens, *labels[1]), tracked=True)

    def inspecting(self, keys: tuple[bytes, ...], label_keys: tuple[bytes, ...] = (), *, queues: bool = False) -> Command:
        """Ask who holds the keys, and for how long.

        Args:
            keys: The keys.
            label_keys: The keys of their labels, to be told what these say.
            queues: Also ask how many wait for each key.
        """
        args = (len(keys), 1) if queues else (len(keys),) if label_keys else ()
        return Command(self.inspect, (*keys, *label_keys), args)

    def releasing(
        self, keys: tuple[bytes, ...], token: bytes, owed_until: float, label_keys: tuple[bytes, ...] = ()
    ) -> Command:
        """Delete those keys that hold the token, and their labels."""
        if label_keys:
            return Command(self.release, (*keys, *label_keys), (token, len(keys)), owed_until)
        if len(keys) > 1:
            return Command(self.release, keys, (token,), owed_until)
        return Command(self.release, None, (), owed_until, self.release_one, (keys[0], token))


_PLAIN = Script("acquire", replies.acquire)
_GUARDED = Script("acquire_guarded", replies.acquire_guarded)
_ACQUIRE_EACH = Script("acquire_each", replies.acquire_each)
_RELEASE = Script("release", replies.release)
_RELEASE_EACH = Script("release_each", replies.release_each)
_HAND_OVER_EACH = Script("hand_over_each", replies.hand_over_each)
_EXTEND = Script("extend", replies.extend)
_WATCH = Script("watch", replies.watch)
_INSPECT = Script("inspect", replies.inspect)
_CONFIRM = Script("confirm", replies.confirm)
_REPAIR = Script("repair", replies.repair)
_RELEASE_ONE = Form(_RELEASE, 1, (None, None), _RELEASE_EACH)


def _mutex(acquire: Script, acquire_one: Form, *, fencing: bool = False, vouch: bytes = b"") -> LockKind:
    return LockKind(
        acquire=acquire,
        extend=_EXTEND,
        watch=_WATCH,
        release=_RELEASE,
        inspect=_INSPECT,
        confirm=_CONFIRM,
        repair=_REPAIR,
        acquire_one=acquire_one,
        release_one=_RELEASE_ONE,
        fencing=fencing,
        vouch=vouch,
    )


MUTEX: Final = _mutex(_PLAIN, Form(_PLAIN, 1, (None, None, None), _ACQUIRE_EACH, (b"0", b""), _HAND_OVER_EACH))
"""One holder at a time: plain `SET NX PX`."""


def guarded_mutex(*, fencing: bool, vouch: bytes) -> LockKind:
    """One holder at a time, with fences, or behind the recovery guard (`vouch` is its word), or both."""
    words = (None, MARKER_KEY, FENCES, None, None, vouch, None, b"", b"", None)
    acquire_one = Form(_GUARDED, 3, words, _ACQUIRE_EACH, (b"2", vouch), _HAND_OVER_EACH)
    return _mutex(_GUARDED, acquire_one, fencing=fencing, vouch=vouch)


FORCE_RELEASE: Final = Script("force_release", replies.force_release)

MARKER: Final = Script("marker", replies.marker)

STAND: Final = Script("stand", replies.stand)

LEAVE: Final = Script("leave", replies.leave)

SCRIPTS: Final = (
    *(_PLAIN, _GUARDED, _ACQUIRE_EACH, _EXTEND, _WATCH, _RELEASE, _RELEASE_EACH, _HAND_OVER_EACH),
    *(_INSPECT, _CONFIRM, _REPAIR, FORCE_RELEASE, MARKER, STAND, LEAVE),
)
"""Everything that a new connection loads."""

CALLED: Final = (
    *("SET", "GET", "MGET", "PTTL", "PEXPIRE", "ZADD", "ZSCORE", "TIME", "DEL"),
    *("ZRANGE", "ZREVRANGE", "ZRANK", "ZREM", "EXISTS", "PUBLISH"),
)
"""Every command that a script calls."""

OF_QUEUES: Final = frozenset({"ZRANGE", "ZREVRANGE", "ZRANK", "ZREM", "EXISTS", "PUBLISH"})
"""Those that only the order of waiters needs. The scripts lock without them."""

COMMANDS: Final = Command(Script("commands", replies.unknown_commands), (), tuple(name.encode() for name in CALLED))
"""Ask whether the server knows these commands. A new connection sends this in full, and does not load it."""


def needed(*, fencing: bool, guard: bool) -> tuple[str, ...]:
    """Name the commands of the scripts that a manager with these settings runs."""
    # Without queues waiting is slower, and as safe.
    dispensable = OF_QUEUES | ({"ZADD", "ZSCORE"} if not fencing else set()) | ({"TIME"} if not guard else set())
    return tuple(name for name in CALLED if name not in dispensable)
