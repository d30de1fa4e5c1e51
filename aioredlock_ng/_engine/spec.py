"""The description of a lock or a semaphore. It is checked once, not at each acquisition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._scripts.exclusive_kinds import LockKind

__all__ = ["Life", "LineKey", "LockSpec", "Numbered"]

LineKey = tuple[bytes, ...] | tuple[bytes, int]
"""The name of a waiting line: the keys of a lock, or the key and the limit of a semaphore. For a
line of readers, the name is the key of the lock and the number 0."""


@dataclass(frozen=True, slots=True)
class Life:
    """The ttl, `min_hold`, and the times that follow from them. All but `ttl_word` are in seconds.

    Attributes:
        ttl_word: The first ttl of the keys in milliseconds, as sent to the nodes. `min_hold` can
            make it longer than `ttl`.
        drift: The time by which a lease ends before its keys, because clocks may run at different
            rates.
        least_validity: The shortest time that must be left until the deadline when a quorum has
            granted. If less is left, the attempt has failed.
        watch_after: The time from the beginning of a lease until its keys are first watched.
        min_hold: After the grant, the keys stay taken for at least this time.
    """

    ttl: float
    ttl_word: bytes
    drift: float
    least_validity: float
    watch_after: float
    min_hold: float = 0.0

    @property
    def first_ttl(self) -> float:
        """The first ttl of the keys in seconds."""
        return int(self.ttl_word) / 1000


class Numbered:
    """The slots of a semaphore. Each slot is a lock with one key.

    The argument `make` is a function that gets the number of a slot and returns its description.
    """

    __slots__ = ("_made", "_make", "key", "limit")

    def __init__(self, key: bytes, limit: int, make: Callable[[int], LockSpec]) -> None:
        self.key = key
        self.limit = limit
        self._make = make
        self._made: dict[int, LockSpec] = {}

    def __getitem__(self, number: int) -> LockSpec:
        """Return the description of a slot. The first slot has the number 1."""
        made = self._made.get(number)
        if made is None:
            made = self._made[number] = self._make(number)
        return made


# The class is not frozen, because `Redlock.lock()` would then spend a third of its time on
# assigning the attributes. Programs call `lock()` for each acquisition.
@dataclass(slots=True, eq=False)
class LockSpec:
    """The description of a lock, of a semaphore or of one slot. A description never changes.

    Attributes:
        kind: The kind of the lock, which builds its commands.
        resource: The name or names of the lock, for messages.
        resources: The names as the user gave them.
        keys: The Redis keys, in the order of the names; for a semaphore, the keys of all slots.
        counters: The numbers of the keys' fence counters, without duplicates; empty for a
            semaphore.
        life: The ttl and the times that follow from it.
        auto_extend: True if leases are renewed in the background.
        max_hold: Seconds after which a lease ends even if it is renewed; None for no limit.
        owner: The text of the label. None means the text of the manager.
        fail_fast: True if an acquisition does not wait while it is known that no quorum can grant.
        fair: True if each acquisition has a place of its own in the queues, and gets no grant from
            another task of its process.
        slots: The slots of a semaphore; None for a lock and for one slot.
        number: The number of one slot; None for a lock and for a semaphore.
        reading: For a writer's lock, the description of the read lease after a downgrade; otherwise
            None.
    """

    kind: LockKind
    resource: str
    resources: tuple[str | bytes, ...]
    keys: tuple[bytes, ...]
    counters: tuple[bytes, ...]
    life: Life
    auto_extend: bool
    max_hold: float | None
    owner: str | None = None
    fail_fast: bool = False
    fair: bool = False
    slots: Numbered | None = None
    number: int | None = None
    reading: LockSpec | None = None

    @property
    def line(self) -> LineKey:
        """The name of the line in which acquisitions of this lock wait."""
        if self.kind.shared:
            return self.keys[0], 0
        return self.keys if self.slots is None else (self.slots.key, self.slots.limit)
