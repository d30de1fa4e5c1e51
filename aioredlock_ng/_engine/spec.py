"""What a lock asks for, checked once and shared by all its acquisitions; it holds no state of any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioredlock_ng._scripts.kinds import LockKind

__all__ = ["Life", "LockSpec"]


@dataclass(frozen=True, slots=True)
class Life:
    """What follows from a ttl; all but `ttl_word` in seconds.

    Attributes:
        ttl: As asked for.
        ttl_word: The same as sent, in milliseconds.
        drift: What of it is given up.
        least_validity: What must be left for a grant to count.
        watch_after: When to begin to watch its keys.
    """

    ttl: float
    ttl_word: bytes
    drift: float
    least_validity: float
    watch_after: float


# Not frozen: that would be a third of the cost of `Redlock.lock()`, which programs call for every acquisition.
@dataclass(slots=True, eq=False)
class LockSpec:
    """One `Redlock.lock(...)` call; never changed afterwards.

    Attributes:
        kind: Which scripts.
        resource: For people.
        resources: The names as given.
        keys: The Redis keys, in the order of the names.
        slots: Of their fence counters, each once.
        life: The ttl and what follows from it.
        auto_extend: Renew in the background.
        max_hold: Seconds after which the lease ends all the same, or None.
        owner: The text of its label; None: the manager's.
        fair: Stand in the queues alone, and take no grant that is passed on.
        fail_fast: Do not wait while it is known that no quorum can grant.
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
