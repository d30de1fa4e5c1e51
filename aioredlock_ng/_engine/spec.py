"""The description of a lock or a semaphore. It is checked once, and all acquisitions share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._scripts.kinds import LockKind

__all__ = ["Life", "LineKey", "LockSpec", "Numbered"]

LineKey = tuple[bytes, ...] | tuple[bytes, int]
"""The name of a waiting line: the keys of a lock, or the key and the limit of a semaphore."""


@dataclass(frozen=True, slots=True)
class Life:
    """The ttl and `min_hold`, and what follows from them. All but `ttl_word` are in seconds.

    Attributes:
        ttl: The ttl of the lock.
        ttl_word: The first life of the keys in milliseconds, as it is sent to the nodes. It is the
            ttl, or longer to cover `min_hold`.
        drift: The part of the ttl that is given up because clocks differ.
        least_validity: The time that must be left when a quorum has granted. Otherwise the attempt
            has failed.
        watch_after: The time from the beginning of the grant until its keys are watched.
        min_hold: The time after the grant for which the keys stay taken at least.
    """

    ttl: float
    ttl_word: bytes
    drift: float
    least_validity: float
    watch_after: float
    min_hold: float = 0.0


class Numbered:
    """The slots of a semaphore. Each is a lock with one key.

    Args:
        key: The key of the semaphore.
        limit: The number of slots.
        make: Returns the description of a slot.
    """

    __slots__ = ("_made", "_make", "key", "limit")

    def __init__(self, key: bytes, limit: int, make: Callable[[int], LockSpec]) -> None:
        self.key = key
        self.limit = limit
        self._make = make
        self._made: dict[int, LockSpec] = {}

    def __getitem__(self, number: int) -> LockSpec:
        """Return the description of a slot, from 1."""
        made = self._made.get(number)
        if made is None:
            made = self._made[number] = self._make(number)
        return made


# The class is not frozen. Freezing would be a third of the cost of `Redlock.lock()`, which programs
# call for each acquisition.
@dataclass(slots=True, eq=False)
class LockSpec:
    """The description of a lock, made by `Redlock.lock(...)`. It never changes afterwards.

    Attributes:
        kind: The scripts that take, keep and release the keys.
        resource: The name or names of the lock, for messages.
        resources: The names as given.
        keys: The Redis keys, in the order of the names.
        counters: The fence counters of the keys, without repetition.
        life: The ttl and the times that follow from it.
        auto_extend: True if leases are renewed in the background.
        max_hold: Seconds after which a lease ends even if it is renewed; None for no limit.
        owner: The text of the label. None takes the text of the manager.
        fail_fast: True if an acquisition does not wait while it is known that no quorum can grant.
        fair: True if each acquisition stands in the queues by itself, and takes no grant that is
            passed on.
        slots: The slots of a semaphore, of which an acquisition takes one; None for a lock.
        number: The number of this slot of a semaphore; None for a lock.
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

    @property
    def line(self) -> LineKey:
        """The name of the waiting line."""
        return self.keys if self.slots is None else (self.slots.key, self.slots.limit)
