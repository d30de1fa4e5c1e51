"""The minimum hold of a lease. Its keys stay taken for this time, even if the lease ends early.

The first ttl of the keys is at least as long as the minimum hold, so even a crash does not free the
keys early. Renewals and repairs keep the keys at least until the end of the minimum hold. If a
lease ends early, a mark (see `_core/over_mark.py`) replaces the token in the keys. The keys then
expire at the end of the minimum hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.validity import ttl_ms

if TYPE_CHECKING:
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._scripts import Command

__all__ = ["begin", "kept_for", "retirement"]


def begin(lease: LeaseRecord, now: float) -> None:
    life = lease.spec.life
    lease.kept_until = now + life.min_hold
    lease.longest_ttl = max(lease.longest_ttl, life.first_ttl)


def kept_for(context: Context, lease: LeaseRecord, now: float) -> float:
    """Return the seconds until the minimum hold ends, drift included; 0.0 after its end."""
    left = lease.kept_until - now
    return left + context.options.drift(left) if left > 0.0 else 0.0


def retirement(context: Context, lease: LeaseRecord, now: float) -> Command | None:
    """Return the command that replaces the release of a lease; None if the keys may be freed.

    If no caller has received the lease, its keys are freed immediately. The keys of a lost lease
    stay taken, because its caller may still receive the lease.
    """
    left = kept_for(context, lease, now)
    if not left or not (lease.taken or lease.phase is Phase.LOST):
        return None
    label = b"" if context.labels is None else context.labels.value(lease)
    return lease.spec.kind.retiring(
        lease.spec.keys, lease.token, ttl_ms(left), now + lease.longest_ttl, label
    )
