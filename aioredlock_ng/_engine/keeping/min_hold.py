"""The minimum hold of a lease: how long its keys stay taken, whatever happens to the lease.

The first life of the keys covers the minimum hold, so that a crash keeps it. Renewals and repairs
give the keys no shorter life. A lease that ends early replaces its token by a mark, and the keys
expire at the end of the minimum hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.validity import ttl_ms

if TYPE_CHECKING:
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._scripts import Command

__all__ = ["begin", "kept_for", "retirement"]


def begin(holding: Holding, now: float) -> None:
    """Begin the minimum hold of a lease that is granted now."""
    life = holding.spec.life
    holding.kept_until = now + life.min_hold
    holding.longest_ttl = max(holding.longest_ttl, int(life.ttl_word) / 1000)


def kept_for(context: Context, holding: Holding, now: float) -> float:
    """Return the seconds that the keys must live from `now` on, drift included; 0.0 if none."""
    left = holding.kept_until - now
    return left + context.options.drift(left) if left > 0.0 else 0.0


def retirement(context: Context, holding: Holding, now: float) -> Command | None:
    """Return the command that replaces the release of a lease; None if the keys may be freed.

    A lease that no caller has received is released at once. If it was lost, its caller may still
    receive it.
    """
    left = kept_for(context, holding, now)
    if not left or not (holding.taken or holding.phase is Phase.LOST):
        return None
    label = b"" if context.labels is None else context.labels.value(holding)
    return holding.spec.kind.retiring(
        holding.spec.keys, holding.token, ttl_ms(left), now + holding.longest_ttl, label
    )
