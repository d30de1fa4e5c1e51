"""The beginning and the end of each lease of one manager.

A lease ends once: it is released, abandoned or lost. Instead of a release on the nodes, the grant
may be passed on to a waiting task. `renewals.py` renews leases until they end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._core.validity import STALL_SHARE, renew_at
from aioredlock_ng._engine.keeping import min_hold
from aioredlock_ng._engine.keeping.batch import Batch
from aioredlock_ng._engine.keeping.endings import Endings
from aioredlock_ng._engine.keeping.key_releases import KeyReleases
from aioredlock_ng._engine.keeping.lease_record import Counted
from aioredlock_ng._engine.keeping.reasons import (
    CLOSED,
    EXPIRED,
    LOOP_CLOSED,
    MAX_HOLD,
    STOOD_STILL,
    UNKEPT,
    UNRENEWED,
    VANISHED,
)
from aioredlock_ng._engine.keeping.renewals import Renewals
from aioredlock_ng._engine.keeping.repair import Repairs
from aioredlock_ng._engine.keeping.watcher import Watcher
from aioredlock_ng.events import LeaseDowngraded, LockHandedOver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._engine.attempt.releases import Releases
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.keeping.read_grant import ReadGrant
    from aioredlock_ng._engine.waiting.lines import Lines

__all__ = ["CLOSED", "LOOP_CLOSED", "UNKEPT", "Extender"]


class Extender(Endings):
    """Owns every lease of one manager from grant to end.

    Args:
        releases: Sends releases to the nodes.
        lines: The lines of waiting tasks. At the end of a lease, the next task in line gets the
            grant or asks the nodes.

    Attributes:
        leases: The leases that have not ended.
    """

    def __init__(self, context: Context, releases: Releases, lines: Lines) -> None:
        self._context = context
        self._releases = KeyReleases(context, releases)
        self._lines = lines
        self.leases: set[LeaseRecord] = set()
        repairs = Repairs(context)
        self.watcher = Watcher(context, self.leases, self.vanished, self.check, repairs)
        self._renewals = Renewals(context, self.watcher, repairs, self.vanished, self._overdue)
        self._schedule = self._renewals.schedule

    def adopt(self, lease: LeaseRecord) -> None:
        """Take over a new lease, and schedule the first watch of its keys."""
        self.leases.add(lease)
        if lease.spec.life.min_hold:
            min_hold.begin(lease, self._context.clock())
        at = lease.since + lease.spec.life.watch_after
        if lease.spec.kind.shared:
            # The grant may be much older than this lease, so the renewal of the grant may be due
            # before the watch. After an unconfirmed renewal with a shorter ttl, even the deadline
            # may be that near, and the renewal needs some time before it.
            midway = (lease.since + lease.deadline) / 2
            at = min(at, renew_at(lease.started, lease.ttl, 0.0), midway)
        lease.slot = self._schedule.add(
            lease, at if lease.spec.max_hold is None else min(lease.deadline, at)
        )

    def watch(self, lease: LeaseRecord) -> None:
        """Watch a lease now, unless it has ended or is watched already."""
        if lease.phase is Phase.HELD and not lease.watched:
            self.watcher.watch([lease])

    def pass_on(self, lease: LeaseRecord) -> bool:
        """End a lease without a release on the nodes, if its grant is still needed.

        Either the next task in line gets a lease of the grant, or a read grant outlives the lease.

        Returns:
            True if the lease has ended. False if the caller must call `release` instead.
        """
        now = self._context.clock()
        if lease.read_grant is not None and lease.read_grant.outlives(lease, now):
            if lease.deadline <= now:
                return False
            lease.end(Phase.RELEASED)
            self._forget(lease)
            self._releases.left(lease.read_grant, lease, now)
            self._lines.freed(lease)
            self._released(lease, now)
            return True
        successor = self._lines.successor(lease, now)
        if successor is None:
            return False
        lease.end(Phase.RELEASED)
        self._forget(lease)
        self._lines.pass_on(lease, successor)
        if (report := self._context.report) is not None:
            report(LockHandedOver(lease.spec.resource))
        self._released(lease, now)
        return True

    def release(self, lease: LeaseRecord) -> Round | None:
        """End a lease, and release its keys on the nodes.

        If `min_hold` is not over, a mark (see `_core/over_mark.py`) replaces the token, and the
        keys stay taken until the end of `min_hold`. When the method returns, the release is queued.
        The attempt of the next task in line is queued behind the release.

        Returns:
            The round of the release. None if the lease had ended already, if its deadline has
            passed, or if its read grant must not be released.
        """
        if lease.phase is not Phase.HELD:
            return None
        now = self._context.clock()
        if lease.deadline <= now:
            self._overdue(lease)
            return None
        lease.end(Phase.RELEASED)
        release = self._end(lease, now)
        self._released(lease, now)
        return release

    def abandon(self, lease: LeaseRecord) -> None:
        """Stop renewing a lease without releasing it, so that its keys expire.

        A lease whose deadline has passed is declared lost instead.
        """
        self.check(lease)
        if lease.phase is Phase.HELD:
            lease.end(Phase.ABANDONED)
            self._leave_to_expire(lease)
            self.report_end(lease)

    def lose(self, lease: LeaseRecord, reason: str) -> None:
        """Declare a lease lost, unless it has already ended.

        The holder is notified, the remaining keys are released, and the next task in line asks the
        nodes.
        """
        if lease.phase is not Phase.HELD:
            return
        now = self._lost(lease, reason)
        self._end(lease, now)
        # If the body waits in `Lease.extend` or `Lease.downgrade`, this call raises `LockLost`. So
        # the body need not be cancelled.
        if lease.asking is None:
            lease.notify_body()
        self.report_end(lease)

    def forsake(self, lease: LeaseRecord, reason: str, *, dead: bool = False) -> None:
        """Declare a lease lost, unless it has already ended, and leave its keys to expire.

        The holder may be unable to stop its work immediately. If the keys were released, another
        holder could work at the same time. `dead` is True if the engine serves no calls any more.
        """
        if lease.phase is not Phase.HELD:
            return
        self._lost(lease, reason)
        lease.forsaken = True
        self._leave_to_expire(lease, dead=dead)
        if dead or lease.asking is None:
            lease.notify_body()
        self.report_end(lease)

    def check(self, lease: LeaseRecord) -> None:
        """Declare a lease lost if its deadline has passed, but its timer has not run yet.

        The method must run on the event loop.
        """
        if lease.phase is Phase.HELD and lease.remaining(self._context.clock()) <= 0.0:
            self._overdue(lease)

    def renew(self, leases: Sequence[LeaseRecord], ttl: float) -> Batch:
        return self._renewals.renew(leases, ttl)

    def stop(self) -> None:
        """Stop all timers, and send nothing."""
        self._schedule.stop()
        self._releases.stop()

    def close(self) -> None:
        """Stop all timers. Release the read grants that wait only for their timer."""
        self._releases.close()
        self.stop()

    def vanished(self, lease: LeaseRecord) -> None:
        """Declare a lease lost, with all leases of its grant, because the nodes lack its key."""
        self.lose(lease, VANISHED)
        # All leases of a read grant have the same entry on the nodes, so all of them are lost. The
        # caller may be the task of an enclosing block. During its own call it is not cancelled, but
        # its error is only about `lease`. So the other losses come in a callback.
        if lease.read_grant is not None:
            self._context.loop.call_soon(self._lose_all, lease.read_grant)

    def _lose_all(self, grant: ReadGrant[LeaseRecord]) -> None:
        for lease in list(grant.leases):
            self.lose(lease, VANISHED)

    def _overdue(self, lease: LeaseRecord) -> None:
        if lease.deadline == lease.ends_at:
            self.lose(lease, MAX_HOLD)
        elif lease.spec.auto_extend or (lease.renewal_sent and lease.unconfirmed):
            self.lose(lease, UNRENEWED + self._standstill(lease))
        else:
            self.lose(lease, EXPIRED)

    def _standstill(self, lease: LeaseRecord) -> str:
        """Return a remark if the event loop stood still long enough to delay renewals; else ""."""
        now = self._context.clock()
        stall = max(now - lease.deadline, self._schedule.stall(lease.started, now))
        return f"; the {STOOD_STILL} {stall:.1f} s" if stall >= lease.ttl * STALL_SHARE else ""

    def downgrade(self, lease: LeaseRecord) -> Batch:
        """Turn a writer's lease into a read lease, and send the change to the nodes.

        The lease becomes a read lease before the first request is sent. It stays a read lease even
        if no node answers.
        """
        if lease.watched:
            self.watcher.forget(lease)
        lease.downgrade()
        renewal = self._renewals.renew([lease], lease.ttl)
        self._lines.downgraded(lease)
        # The report comes last, because a listener may end the lease.
        if (report := self._context.report) is not None and lease.taken:
            report(LeaseDowngraded(lease.spec.resource, lease.token_prefix))
        return renewal

    def _leave_to_expire(self, lease: LeaseRecord, *, dead: bool = False) -> None:
        self._forget(lease)
        if (grant := lease.read_grant) is not None:
            grant.expire_with(lease)
            if dead:
                grant.leave(lease)
            else:
                self._releases.postpone(grant, lease)
        self._lines.freed(lease)

    def _end(self, lease: LeaseRecord, now: float) -> Round | None:
        self._forget(lease)
        if lease.read_grant is not None and not self._releases.left(lease.read_grant, lease, now):
            self._lines.freed(lease)
            return None
        release = self._releases.send(lease, now)
        self._lines.freed(lease, release)
        return release

    def _forget(self, lease: LeaseRecord) -> None:
        lease.unschedule()
        if isinstance(lease.ballot, Batch):
            lease.ballot = Counted(lease.ballot.held(lease))
        self.leases.discard(lease)
        if lease.watched:
            self.watcher.forget(lease)
        if lease.waiters:
            lease.wake_waiters()
