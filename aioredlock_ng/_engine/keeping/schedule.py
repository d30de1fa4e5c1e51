"""The timers of all leases: a wheel for watching and renewing, and exact timers for deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
from aioredlock_ng._engine.wheel import Wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._engine.context import Context

__all__ = ["RENEW_WIDTH", "Schedule"]

RENEW_WIDTH = 0.02
"""Seconds per slot of the wheel. The renewals of one slot are sent in the same commands."""


class Schedule(Wheel[LeaseRecord]):
    """The timer wheel of one manager's leases, and an exact timer for each deadline that is near.

    Args:
        due: Called with the leases of a slot, to watch or to renew them.
        overdue: Called for a lease whose deadline has passed.
    """

    __slots__ = ("_context", "_due", "_overdue")

    def __init__(
        self,
        context: Context,
        due: Callable[[set[LeaseRecord]], None],
        overdue: Callable[[LeaseRecord], None],
    ) -> None:
        super().__init__(context.loop, context.clock, RENEW_WIDTH, due)
        self._context = context
        self._due = due
        self._overdue = overdue

    def put(self, lease: LeaseRecord, at: float) -> None:
        """Move a lease to the slot of the instant `at`."""
        lease.unschedule()
        lease.slot = self.add(lease, at)

    def put_all(self, leases: Sequence[LeaseRecord], at: float) -> None:
        if leases:
            slot = self.slot(at)
            for lease in leases:
                if lease.slot is not None or lease.timer is not None:
                    lease.unschedule()
                lease.slot = slot
            slot.update(leases)

    def renew_before_deadline(self, lease: LeaseRecord) -> None:
        """Call `due` for a lease after half of the time to its deadline.

        An exact timer is used, because the deadline is near. The slot of the wheel in which the
        next renewal is due may have begun already.
        """
        lease.unschedule()
        left = max(0.0, lease.deadline - self._context.clock())
        lease.timer = self._context.loop.call_later(left / 2, self._due, {lease})

    def watch_deadline(self, lease: LeaseRecord) -> None:
        """Call `overdue` at the lease's deadline.

        An exact timer is used, because the wheel may call one slot too early. A lease must not be
        declared lost before its deadline.
        """
        lease.unschedule()
        delay = max(0.0, lease.deadline - self._context.clock())
        lease.timer = self._context.loop.call_later(delay, self._at_deadline, lease)

    def _at_deadline(self, lease: LeaseRecord) -> None:
        lease.timer = None
        if lease.deadline <= self._context.clock():
            self._overdue(lease)
        else:
            self.watch_deadline(lease)
