"""The holdings of one manager from grant to end.

A holding is adopted when a quorum grants it. It ends once: passed on to a waiting task, released,
abandoned or lost. `renewals.py` keeps it alive until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.validity import STALL_SHARE
from aioredlock_ng._engine.keeping import min_hold
from aioredlock_ng._engine.keeping.batch import Batch
from aioredlock_ng._engine.keeping.holding import Counted
from aioredlock_ng._engine.keeping.renewals import Renewals
from aioredlock_ng._engine.keeping.repair import Repairs
from aioredlock_ng._engine.keeping.watcher import Watcher
from aioredlock_ng.events import (
    LeaseAbandoned,
    LeaseLost,
    LeaseReleased,
    LockHandedOn,
    LossFound,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._engine.attempt.releases import Releases
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._engine.waiting.lines import Lines

__all__ = ["CLOSED", "LOOP_CLOSED", "UNKEPT", "Extender"]

CLOSED = "its Redlock was closed"
LOOP_CLOSED = "the event loop of its holder was closed"
UNKEPT = "no thread renews it any more"
_UNRENEWED = "its deadline passed before a quorum renewed it"
_MAX_HOLD = "held longer than max_hold"
_EXPIRED = "its deadline passed, and it was not to be renewed (auto_extend=False)"
_STOOD_STILL = "event loop stood still for"
_CAUSES = {
    CLOSED: "closed",
    LOOP_CLOSED: "closed",
    UNKEPT: "unrenewed",
    _UNRENEWED: "unrenewed",
    _MAX_HOLD: "max_hold",
    _EXPIRED: "expired",
}
"""`LeaseLost.cause` for each reason, up to a ";". Any other reason means that the keys are gone."""


class Extender:
    """Owns every holding of one manager from grant to end.

    Args:
        context: The engine's surroundings.
        releases: Sends releases to the nodes.
        lines: The waiting lines of the manager. The end of a holding lets the next task ask.

    Attributes:
        holdings: The holdings that have not ended.
        watcher: Notices changed keys of holdings.
    """

    def __init__(self, context: Context, releases: Releases, lines: Lines) -> None:
        self._context = context
        self._releases = releases
        self._lines = lines
        self.holdings: set[Holding] = set()
        repairs = Repairs(context)
        self.watcher = Watcher(context, self.holdings, self._vanished, self.check, repairs)
        self._renewals = Renewals(context, self.watcher, repairs, self._vanished, self._overdue)
        self._schedule = self._renewals.schedule

    def adopt(self, holding: Holding) -> None:
        """Take over a holding that was just granted, and schedule its first watching."""
        self.holdings.add(holding)
        if holding.spec.life.min_hold:
            min_hold.begin(holding, self._context.clock())
        at = holding.since + holding.spec.life.watch_after
        holding.slot = self._schedule.add(
            holding, at if holding.spec.max_hold is None else min(holding.deadline, at)
        )

    def watch(self, holding: Holding) -> None:
        """Read the keys of a holding now, so that the nodes report each change from now on."""
        if holding.phase is Phase.HELD and not holding.watched:
            self.watcher.watch([holding])

    def pass_on(self, holding: Holding) -> bool:
        """End a lease, and give the next task in line a lease of the same grant.

        Returns:
            False if the nodes must be asked. Nothing has changed then; the caller uses `release`.
        """
        line = holding.line
        if line is None or (not line.queue and line.contender is None):
            return False
        now = self._context.clock()
        successor = self._lines.successor(holding, now)
        if successor is None:
            return False
        holding.end(Phase.RELEASED)
        self._forget(holding)
        self._lines.pass_on(holding, successor)
        if (report := self._context.report) is not None:
            report(LockHandedOn(holding.spec.resource))
        self._released(holding, now)
        return True

    def release(self, holding: Holding) -> Round | None:
        """End a lease, and release its keys on the nodes.

        Before the end of `min_hold` the keys get a mark instead, and stay taken until then.
        When this returns, the release is queued. The attempt of the next task in line is queued
        behind it.

        Returns:
            The round of the release; None if the lease was over already.
        """
        if holding.phase is not Phase.HELD:
            return None
        now = self._context.clock()
        if holding.deadline <= now:
            self._overdue(holding)
            return None
        holding.end(Phase.RELEASED)
        release = self._end(holding, now)
        self._released(holding, now)
        return release

    def _released(self, holding: Holding, now: float) -> None:
        self._context.counters.released += 1
        if (report := self._context.report) is not None and holding.taken:
            report(LeaseReleased(holding.spec.resource, holding.token_prefix, now - holding.since))

    def abandon(self, holding: Holding) -> None:
        """Stop renewing a lease without releasing it, so that its keys expire.

        A lease whose deadline has passed is declared lost instead.
        """
        self.check(holding)
        if holding.phase is Phase.HELD:
            holding.end(Phase.ABANDONED)
            self._forget(holding)
            self._lines.freed(holding)
            if holding.taken:
                self.report_end(holding)

    def lose(self, holding: Holding, reason: str) -> None:
        """Declare a lease lost, unless it is over already.

        The holder is notified, keys that are left are released, and the next task in line asks.

        Args:
            holding: The lease.
            reason: The reason, for errors and events.
        """
        if holding.phase is not Phase.HELD:
            return
        now = self._lost(holding, reason)
        self._end(holding, now)
        # A task that renews the lease at this moment gets an exception instead.
        if holding.asking is None:
            holding.notify_body()
        if holding.taken:
            self.report_end(holding)

    def forsake(self, holding: Holding, reason: str) -> None:
        """Declare a lease lost, unless it is over already, and leave its keys to expire.

        The holder may be unable to stop its work at once. A release of the keys would let the next
        holder work beside it.

        Args:
            holding: The lease.
            reason: The reason, for errors and events.
        """
        if holding.phase is not Phase.HELD:
            return
        self._lost(holding, reason)
        self._forget(holding)
        self._lines.freed(holding)
        holding.notify_body()
        if holding.taken:
            self.report_end(holding)

    def _lost(self, holding: Holding, reason: str) -> float:
        counters, now = self._context.counters, self._context.clock()
        counters.lost += 1
        counters.stalled += _STOOD_STILL in reason
        # `lost_at` is set before the phase, because another thread may read it once the lease is
        # over.
        holding.lost_at = min(now, holding.deadline)
        holding.end(Phase.LOST, reason)
        return now

    def found_lost(self, holding: Holding, reason: str) -> None:
        """Record that the lease was lost before its release, as the answers to the release show."""
        holding.reason = reason
        holding.lost_at = self._context.clock()
        self._context.counters.lost += 1
        if holding.taken:
            self._context.emit(LossFound(holding.spec.resource, holding.token_prefix, reason))

    def report_end(self, holding: Holding) -> None:
        """Report to listeners that a caller's lease is lost or abandoned."""
        context, resource = self._context, holding.spec.resource
        if holding.phase is Phase.LOST:
            cause = _CAUSES.get(holding.reason.partition(";")[0], "gone")
            if _STOOD_STILL in holding.reason:
                cause = "stalled"
            context.emit(
                LeaseLost(
                    resource,
                    holding.token_prefix,
                    holding.reason,
                    holding.lost_at - holding.since,
                    cause,
                )
            )
        elif context.report is not None:
            context.report(
                LeaseAbandoned(resource, holding.token_prefix, context.clock() - holding.since)
            )

    def check(self, holding: Holding) -> None:
        """Declare a holding lost if its deadline has passed before its timer ran.

        Must run on the event loop.
        """
        if holding.phase is Phase.HELD and holding.remaining(self._context.clock()) <= 0.0:
            self._overdue(holding)

    def renew(self, holdings: Sequence[Holding], ttl: float) -> Batch:
        """Send a renewal of these holdings now. See `Renewals.renew`."""
        return self._renewals.renew(holdings, ttl)

    def close(self) -> None:
        """Stop all timers."""
        self._schedule.stop()

    def _vanished(self, holding: Holding) -> None:
        self.lose(holding, "a quorum of nodes no longer holds its key")

    def _overdue(self, holding: Holding) -> None:
        if holding.deadline == holding.ends_at:
            self.lose(holding, _MAX_HOLD)
        elif holding.spec.auto_extend or holding.unconfirmed:
            self.lose(holding, _UNRENEWED + self._standstill(holding))
        else:
            self.lose(holding, _EXPIRED)

    def _standstill(self, holding: Holding) -> str:
        """Return a remark on a standstill of the event loop.

        It is empty if the standstill was too short to delay renewals.
        """
        now = self._context.clock()
        stall = max(now - holding.deadline, self._schedule.stall(holding.started, now))
        return f"; the {_STOOD_STILL} {stall:.1f} s" if stall >= holding.ttl * STALL_SHARE else ""

    def _end(self, holding: Holding, now: float) -> Round:
        self._forget(holding)
        if holding.repairing:
            # A repair under way sets `granted` to None, but a late answer to the acquire may have
            # replaced that. The release would then skip a node to which the repair gives our keys.
            for index in range(len(holding.granted)):
                if holding.repairing & (1 << index):
                    holding.granted[index] = None
        retirement = None
        if holding.kept_until > now:
            retirement = min_hold.retirement(self._context, holding, now)
        if retirement is not None:
            release = self._releases.retire(retirement, holding.granted, now)
        else:
            label_keys = tuple(map(owner_key, holding.spec.keys)) if holding.labelled_until else ()
            release = self._releases.send(
                holding.spec, holding.token, holding.granted, holding.longest_ttl, now, label_keys
            )
        self._lines.freed(holding)
        return release

    def _forget(self, holding: Holding) -> None:
        if holding.slot is not None or holding.timer is not None:
            holding.unschedule()
        if isinstance(holding.ballot, Batch):
            holding.ballot = Counted(holding.ballot.held(holding))
        self.holdings.discard(holding)
        if holding.watched:
            self.watcher.forget(holding)
        if holding.waiters:
            holding.wake_waiters()
