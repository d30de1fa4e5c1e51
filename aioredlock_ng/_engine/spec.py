"""What a lock asks for, checked once and shared by all its acquisitions; it holds no state of any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioredlock_ng._scripts import LockKind

__all__ = ["LockSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockSpec:
    """One `Redlock.lock(...)` call.

    Attributes:
        kind: Which scripts.
        resource: For people.
        resources: The names as given.
        keys: The Redis keys, in the order of the names.
        ttl: Seconds.
        ttl_ms: The same as sent.
        drift: Seconds of it given up.
        least_validity: Seconds that must be left for a grant to count.
        auto_extend: Renew in the background.
        max_hold: Seconds after which the lease ends all the same, or None.
    """

    kind: LockKind
    resource: str
    resources: tuple[str | bytes, ...]
    keys: tuple[bytes, ...]
    ttl: float
    ttl_ms: int
    drift: float
    least_validity: float
    auto_extend: bool
    max_hold: float | None
