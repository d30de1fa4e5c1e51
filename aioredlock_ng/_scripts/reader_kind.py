"""The kind of lock for the readers of a read-write lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._scripts.catalogue import (
    ACQUIRE_READ,
    CONFIRM_READ,
    EXTEND_READ,
    INSPECT,
    RELEASE_READ,
    REPAIR_READ,
    WATCH_READ,
)
from aioredlock_ng._scripts.exclusive_kinds import MARKER_KEY, MUTEX, LockKind, Mark
from aioredlock_ng._scripts.requests import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ReadKind", "read_side"]


class ReadKind(LockKind):
    """The kind of lock for readers. Each read grant has an entry of its own under the key.

    The entry is the token of the grant, and contains the identifier of the manager. When a writer
    begins to wait, a node notifies the managers whose identifiers are in the entries.
    """

    __slots__ = ()

    def token(self, token: bytes, manager: bytes) -> bytes:
        return b"%b:%b" % (token, manager)

    def label_key(self, key: bytes, token: bytes) -> bytes:
        """Return the key of a lease's label. Each read grant has a label of its own."""
        return b"%b:%b" % (owner_key(key), token[:16])

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
        """Return the command that requests a read grant. `fence` and `tell_counter` are ignored."""
        slot = slots[0] if self.fencing else b""
        own = (*keys, MARKER_KEY, self.counters)
        return Command(self.acquire, own, (token, ttl, self.own_marker, slot, claim))

    def extending(
        self,
        keys: tuple[bytes, ...],
        tokens: Sequence[bytes],
        ttl: int,
        marks: Sequence[Mark] = (),
    ) -> Command:
        """Return the command that renews the entries of read grants.

        The keys may belong to several leases. `marks` has one `Mark` for each key. If a lease was
        downgraded, a node replaces its key by an entry, and stores the fence of the key's `Mark`.
        """
        args: list[bytes | int] = [ttl]
        for at, token in enumerate(tokens):
            fence, slot = marks[at] if marks else (0, b"")
            args += (token, fence or b"", slot)
        return Command(self.extend, (*keys, self.counters), tuple(args))

    def releasing(
        self,
        keys: tuple[bytes, ...],
        token: bytes,
        owed_until: float | None,
        label_keys: tuple[bytes, ...] = (),
    ) -> Command:
        """Return the command that deletes the entry of a lease, and its label."""
        return Command(self.release, (*keys, *label_keys), (token,), owed_until)


def read_side(of: LockKind) -> ReadKind:
    """Return the kind for readers, with the settings of `of`, the kind for writers."""
    return ReadKind(
        acquire=ACQUIRE_READ,
        extend=EXTEND_READ,
        watch=WATCH_READ,
        release=RELEASE_READ,
        inspect=INSPECT,
        confirm=CONFIRM_READ,
        repair=REPAIR_READ,
        acquire_one=MUTEX.acquire_one,
        release_one=MUTEX.release_one,
        fencing=of.fencing,
        own_marker=of.own_marker,
        counters=of.counters,
        shared=True,
    )
