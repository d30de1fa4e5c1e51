"""The timers of all holdings: a wheel for watching and renewing, and exact timers for deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._engine.keeping.holding import Holding
from aioredlock_ng._engine.wheel import Wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._engine.context import Context

__all__ = ["RENEW_WIDTH", "Schedule"]

RENEW_WIDTH = 0.02
"""Seconds per slot of the wheel. The renewals of one slot leave in the same commands."""


class Schedule(Wheel[Holding]):
    """The timer wheel of one manager's holdings, and an exact timer for each deadline that is near.

    Args:
        context: The engine's surroundings.
        due: Called with the holdings of a slot, to watch or to renew them.
        overdue: Called for a holding whose deadline has passed.
    """

    __slots__ = ("_context", "_due", "_overdue")

    def __init__(
        self,
        context: Context,
        due: Callable[[set[Holding]], None],
        overdue: Callable[[Holding], None],
    ) -> None:
        super().__init__(context.loop, context.clock, RENEW_WIDTH, due)
        self._context = context
        self._due = due
        self._overdue = overdue

    def put(self, holding: Holding, at: float) -> None:
        """Move a holding to the slot of the instant `at`."""
        holding.unschedule()
        holding.slot = self.add(holding, at)

    def put_all(self, holdings: Sequence[Holding], at: float) -> None:
        """Move several holdings to the slot of the instant `at`."""
        if holdings:
            slot = self.slot(at)
            for holding in holdings:
                if holding.slot is not None or holding.timer is not None:
                    holding.unschedule()
                holding.slot = slot
            slot.update(holdings)

    def renew_before_deadline(self, holding: Holding) -> None:
        """Call `due` for a holding after half of the time to its deadline.

        The wheel is too coarse for so near a deadline: its slot may have begun already.
        """
        holding.unschedule()
        left = max(0.0, holding.deadline - self._context.clock())
        holding.timer = self._context.loop.call_later(left / 2, self._due, {holding})

    def watch_deadline(self, holding: Holding) -> None:
        """Call `overdue` at the holding's deadline.

        The wheel may be early by one slot. A lease must not be declared lost before its deadline.
        """
        holding.unschedule()
        delay = max(0.0, holding.deadline - self._context.clock())
        holding.timer = self._context.loop.call_later(delay, self._at_deadline, holding)

    def _at_deadline(self, holding: Holding) -> None:
        holding.timer = None
        if holding.phase is not Phase.HELD:
            return
        if holding.deadline <= self._context.clock():
            self._overdue(holding)
        else:
            self.watch_deadline(holding)
