"""The description of a lock. It is checked once, and all acquisitions of the lock share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioredlock_ng._scripts.kinds import LockKind

__all__ = ["Life", "LockSpec"]


@dataclass(frozen=True, slots=True)
class Life:
    """A ttl and the times that follow from it. All but `ttl_word` are in seconds.

    Attributes:
        ttl: The ttl of the lock.
        ttl_word: The ttl in milliseconds, as it is sent to the nodes.
        drift: The part of the ttl that is given up because clocks differ.
        least_validity: The time that must be left when a quorum has granted. Otherwise the attempt
            has failed.
        watch_after: The time from the beginning of the grant until its keys are watched.
    """

    ttl: float
    ttl_word: bytes
    drift: float
    least_validity: float
    watch_after: float


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
        slots: The slots of the fence counters of the keys, without repetition.
        life: The ttl and the times that follow from it.
        auto_extend: True if leases are renewed in the background.
        max_hold: Seconds after which a lease ends even if it is renewed; None for no limit.
        owner: The text of the label. None takes the text of the manager.
        fail_fast: True if an acquisition does not wait while it is known that no quorum can grant.
        fair: True if each acquisition stands in the queues by itself, and takes no grant that is
            passed on.
    """

    kind: LockKind
    resource: str
    resources: tuple[str | bytes, ...]
    keys: tuple[bytes, ...]
    slots: tuple[bytes, ...]
    life: Life
    auto_extend: bool
    max_hold: float | None
    owner: str | None = None
    fail_fast: bool = False
    fair: bool = False
