"""Record that leases are lost or released, and report the ends of leases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._engine.keeping.reasons import CLOSED, STOOD_STILL, cause_of
from aioredlock_ng.events import LeaseAbandoned, LeaseLost, LeaseReleased, LossFound

if TYPE_CHECKING:
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord

__all__ = ["Endings", "works_on"]


class Endings:
    """Counts ended leases, and reports the ends of leases. The subclass sets `_context`."""

    _context: Context

    def found_lost(self, lease: LeaseRecord, reason: str) -> None:
        """Record the loss of a lease that was already reported as released."""
        lease.lost_at = self._context.clock()
        lease.reason = reason
        self._context.counters.lost += 1
        if lease.taken:
            resource, shared = lease.spec.resource, lease.spec.kind.shared
            cause: Literal["gone", "closed"] = "closed" if reason == CLOSED else "gone"
            self._context.emit(LossFound(resource, lease.token_prefix, reason, shared, cause))

    def report_end(self, lease: LeaseRecord) -> None:
        """Report to listeners that a lease is lost or abandoned, if a caller has it."""
        if not lease.taken:
            return
        context, resource = self._context, lease.spec.resource
        shared = lease.spec.kind.shared
        if lease.phase is Phase.LOST:
            context.emit(
                LeaseLost(
                    resource,
                    lease.token_prefix,
                    lease.reason,
                    lease.lost_at - lease.since,
                    cause_of(lease.reason),
                    shared,
                )
            )
        elif context.report is not None:
            held_for = context.clock() - lease.since
            context.report(LeaseAbandoned(resource, lease.token_prefix, held_for, shared))

    def _released(self, lease: LeaseRecord, now: float) -> None:
        self._context.counters.released += 1
        if (report := self._context.report) is not None and lease.taken:
            spec, held_for = lease.spec, now - lease.since
            report(LeaseReleased(spec.resource, lease.token_prefix, held_for, spec.kind.shared))

    def _lost(self, lease: LeaseRecord, reason: str) -> float:
        counters, now = self._context.counters, self._context.clock()
        counters.lost += 1
        counters.stalled += STOOD_STILL in reason
        # `lost_at` is set before the phase, because another thread may read `lost_at` as soon as
        # the phase is LOST.
        lease.lost_at = min(now, lease.deadline)
        lease.end(Phase.LOST, reason)
        return now


def works_on(lease: LeaseRecord, closer: object) -> bool:
    """Return True if the body of a lease may go on after `Parts.closer` has closed the manager."""
    if lease.task is None:
        return lease.thread_inside
    elsewhere = getattr(lease.home, "loop", None) is not closer
    return lease.thread_inside or lease.expires_at_close or elsewhere
