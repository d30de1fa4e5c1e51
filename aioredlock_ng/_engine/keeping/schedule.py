"""When something is to be done about a holding: the wheel of renewals, and exact deadlines."""

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
"""Seconds of renewals that leave together."""


class Schedule(Wheel[Holding]):
    """The timer wheel of all holdings of a manager, and a timer for each deadline that is near.

    Args:
        context: The engine's surroundings.
        due: Called with holdings that are to be watched or renewed now.
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
        holding.unschedule()
        holding.slot = self.add(holding, at)

    def put_all(self, holdings: Sequence[Holding], at: float) -> None:
        if holdings:
            slot = self.slot(at)
            for holding in holdings:
                if holding.slot is not None or holding.timer is not None:
                    holding.unschedule()
                holding.slot = slot
            slot.update(holdings)

    def renew_before_deadline(self, holding: Holding) -> None:
        """A timer of its own, for the slot of so near a deadline may begin a moment before it, or have begun."""
        holding.unschedule()
        left = max(0.0, holding.deadline - self._context.clock())
        holding.timer = self._context.loop.call_later(left / 2, self._due, {holding})

    def watch_deadline(self, holding: Holding) -> None:
        """An exact timer: the wheel may be a slot early, and a loss must not be."""
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
