"""A kind of lock as data: its scripts, its settings, and the requests for its leases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._scripts.catalogue import FORCE_RELEASE, RETIRE
from aioredlock_ng._scripts.requests import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._scripts.form import Form
    from aioredlock_ng._scripts.script import Script

__all__ = [
    "FENCES",
    "MARKER_KEY",
    "Labels",
    "LockKind",
    "Mark",
]

MARKER_KEY: Final = b"aioredlock_ng:marker"
"""The key of a node's marker, which names the server process whose memory is trusted."""

FENCES: Final = b"aioredlock_ng:fences"
"""The key of the fence counters: a sorted set of slots, each with the highest fence of its keys."""

_NO_TOKEN: Final = b"-"
"""A token that no holder has, for a request that needs tokens."""

Mark = tuple[int, bytes]
"""The fence that a quorum stored for a read grant, and the slot of the key's fence counter.

The fence is 0 without fencing."""

Labels = tuple[tuple[bytes, ...], tuple[bytes | int, ...]]
"""A pair: the keys of the labels; and for each label, its ttl in milliseconds and its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockKind:
    """A kind of lock. Most methods build a request that calls one script.

    Attributes:
        fencing: True if leases have fences.
        own_marker: The expected marker 'run_id:guard' of each node (see acquire_guarded.lua). It is
            empty without the recovery guard. In place of the run id, the marker has a placeholder.
            Each connection replaces the placeholder by the run id of its server.
        counters: The key of the fence counters.
        acquire_one: The form (template) of an acquire of one key. Key, token and ttl vary. With
            `own_marker` or fences, the fence and the slot of its counter vary, too.
        release_one: The form (template) of a release of one key. Key and token vary.
        shared: True if leases of several processes may have the lock at the same time.
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
    own_marker: bytes = b""
    counters: bytes = FENCES
    shared: bool = False

    @property
    def repairing(self) -> bool:
        """Return True if missing keys may be set again.

        Without fences or without the recovery guard, a repair could give a lock two holders.
        """
        return self.fencing and self.own_marker != b""

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
        """Return the command that takes all keys, or none of them.

        `slots` are the slots of the keys' fence counters, each slot once. `ttl` is in milliseconds,
        as decimal digits. `fence` is ignored without fencing. `claim` is the ticket and the member
        of a waiter, see parts/queue.lua, and empty for a first attempt. If `tell_counter` is True,
        the node also returns the highest value that the counters had before.
        """
        if not self.fencing and not self.own_marker:
            if len(keys) > 1 or claim:
                return Command(self.acquire, keys, (token, ttl, claim))
            return Command(self.acquire, None, (), None, self.acquire_one, (keys[0], token, ttl))
        word = b"%d" % fence if self.fencing else b""
        tell = b"1" if tell_counter and self.fencing else b""
        if len(keys) > 1 or claim or tell:
            args = (token, ttl, self.own_marker, word, claim, tell, *slots)
            return Command(self.acquire, (*keys, MARKER_KEY, self.counters), args)
        return Command(
            self.acquire, None, (), None, self.acquire_one, (keys[0], token, ttl, word, slots[0])
        )

    def token(self, token: bytes, manager: bytes) -> bytes:
        """Return the token of an attempt. The kind for readers adds the id of the manager."""
        return token

    def label_key(self, key: bytes, token: bytes) -> bytes:
        return owner_key(key)

    def confirming(
        self, keys: tuple[bytes, ...], slots: tuple[bytes, ...], token: bytes, fence: int
    ) -> Command:
        """Return the command that stores the second fence of an attempt.

        The node acknowledges the fence if the keys still hold the token and the counters are lower.
        """
        return Command(self.confirm, (*keys, self.counters), (token, fence, *slots))

    def repairing_of(
        self, keys: tuple[bytes, ...], slots: tuple[bytes, ...], token: bytes, ttl: int, fence: int
    ) -> Command:
        """Return the command that sets missing keys again and raises the counters to the fence."""
        return Command(
            self.repair,
            (*keys, MARKER_KEY, self.counters),
            (token, ttl, self.own_marker, fence, *slots),
            tracked=not self.shared,
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
        """Return the command that deletes keys if they hold one of these tokens.

        With fencing, the fence counters in `slots` rise to `fence` or more. A fence above the
        holder's fence keeps the holder from repairing the keys. If `any_key` is True, keys of other
        types and strings without expiry are deleted, too. Otherwise the node refuses to delete
        these keys.
        """
        args: list[bytes | int] = [len(tokens), int(any_key), *tokens]
        if self.fencing:
            return Command(FORCE_RELEASE, (*keys, self.counters), (*args, fence, *slots))
        return Command(FORCE_RELEASE, keys, tuple(args))

    def extending(
        self,
        keys: tuple[bytes, ...],
        tokens: Sequence[bytes],
        ttl: int,
        marks: Sequence[Mark] = (),
    ) -> Command:
        """Return the command that renews each key if the key still holds its token.

        The server tracks all keys from then on. The keys may belong to several leases. `tokens` has
        the token of each key, and `ttl` is in milliseconds. The kind for readers overrides this
        method, because only readers have `marks`.
        """
        return Command(self.extend, keys, (ttl, *tokens), tracked=True)

    def watching(
        self, keys: tuple[bytes, ...], tokens: tuple[bytes, ...], labels: Labels = ((), ())
    ) -> Command:
        """Return the command that checks whether the keys hold their tokens.

        The keys may belong to several leases. With `labels`, the node writes a label beside each
        key that holds its token. The server then tracks the keys. Only the keys of readers are not
        tracked, because each change by one reader would be reported to all readers.
        """
        return Command(
            self.watch, (*keys, *labels[0]), (*tokens, *labels[1]), tracked=not self.shared
        )

    def tracking(self, keys: tuple[bytes, ...]) -> Command:
        """Return the command that makes the server track keys. The answer has no meaning."""
        return self.watching(keys, (_NO_TOKEN,) * len(keys))

    def inspecting(
        self, keys: tuple[bytes, ...], label_keys: tuple[bytes, ...] = (), *, queues: bool = False
    ) -> Command:
        """Return the command that reads the token and the remaining time of each key.

        The node also reads the labels under `label_keys`. If `queues` is True, the node also counts
        the waiters of each key.
        """
        args = (len(keys), 1) if queues else (len(keys),) if label_keys else ()
        return Command(self.inspect, (*keys, *label_keys), args)

    def releasing(
        self,
        keys: tuple[bytes, ...],
        token: bytes,
        owed_until: float | None,
        label_keys: tuple[bytes, ...] = (),
    ) -> Command:
        """Return the command that frees the keys with this token, and deletes their labels.

        `Command` describes `owed_until`. With None, the release is sent only once.
        """
        if label_keys:
            return Command(self.release, (*keys, *label_keys), (token, len(keys)), owed_until)
        if len(keys) > 1:
            return Command(self.release, keys, (token,), owed_until)
        return Command(self.release, None, (), owed_until, self.release_one, (keys[0], token))

    def retiring(
        self,
        keys: tuple[bytes, ...],
        token: bytes,
        left: int,
        owed_until: float | None,
        label: bytes = b"",
    ) -> Command:
        """Return the command that marks a lease as over, and keeps its keys taken.

        `left` is the time in milliseconds for which the keys stay taken. `Command` describes
        `owed_until`. An empty label is not written.
        """
        return Command(RETIRE, keys, (token, left, label), owed_until)
