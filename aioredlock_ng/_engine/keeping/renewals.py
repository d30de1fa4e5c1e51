"""Renewals of leases. One command renews many leases, but the result is decided for each lease.

A timer or a caller starts a renewal, and callbacks receive the answers. A failed renewal is
repeated. A renewal compares the token of the lease, so that it never extends the key of another
grant. A renewal never sets a missing key.
"""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase, Renewal
from aioredlock_ng._core.refusals import harmless
from aioredlock_ng._core.replies import ALL_OURS, KeyStates
from aioredlock_ng._core.validity import RETRY_SHARE, SILENT_SHARE, deadline_of, renew_at, ttl_ms
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._engine.keeping.batch import Batch, parts
from aioredlock_ng._engine.keeping.min_hold import kept_for
from aioredlock_ng._engine.keeping.schedule import RENEW_WIDTH, Schedule
from aioredlock_ng.events import LeasesRenewed, NodeDegraded, RenewalFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.keeping.repair import Repairs
    from aioredlock_ng._engine.keeping.watcher import Watcher

__all__ = ["Renewals"]

KEPT_WIDTH = 0.1
"""Seconds by which the minimum holds of leases may differ if one command renews these leases. After
a crash, the keys may live longer than their own minimum hold by this time."""


class Renewals:
    """Renews the leases of one manager.

    Args:
        watcher: Reads keys of leases, so that the nodes track them.
        repairs: Sets keys again on nodes that lost them.
        lose: Called for a lease if no quorum of nodes has its keys any more.
        overdue: Called for a lease whose deadline has passed.
    """

    def __init__(
        self,
        context: Context,
        watcher: Watcher,
        repairs: Repairs,
        lose: Callable[[LeaseRecord], None],
        overdue: Callable[[LeaseRecord], None],
    ) -> None:
        self._context = context
        self._watcher = watcher
        self._repairs = repairs
        self._lose = lose
        self._overdue = overdue
        self.schedule = Schedule(context, self._due, overdue)
        # The nodes that have refused a renewal, and have renewed no key since.
        self._refusing: set[int] = set()

    def renew(self, leases: Sequence[LeaseRecord], ttl: float) -> Batch:
        """Renew leases by one command to all nodes.

        After the answers, a lease has a new deadline, is scheduled for another try, or is lost.

        The leases must be of the same kind of lock. `ttl` is in seconds from now. The command gives
        all keys the same life, which covers the longest minimum hold. So leases whose minimum holds
        end at very different times should not be renewed together.
        """
        context = self._context
        options = context.options
        started = context.clock()
        renewal = Renewal(started, ttl, deadline_of(started, ttl, options.drift(ttl)))
        decided_by = started + options.node_timeout + 2 * RENEW_WIDTH
        # The keys must not expire before the end of `min_hold`, not even after a crash.
        kept = [kept_for(context, lease, started) for lease in leases if lease.kept_until > started]
        life = max([ttl, *kept])
        # An unwatched lease is watched now, because the renewal removes the lease from the slot of
        # the wheel in which the watch was due. Watching also writes the label, which is due at
        # `labelled_until` or when the ttl grows.
        unread = [
            lease
            for lease in leases
            if not lease.watched
            or (
                lease.labelled_until
                and (started >= lease.labelled_until or life > lease.longest_ttl)
            )
        ]
        for lease in leases:
            lease.asked(renewal)
            if life > lease.longest_ttl:
                lease.longest_ttl = life
            # The callbacks of the batch schedule the lease again. If the deadline may pass before
            # these callbacks, the deadline is scheduled here, so that it does not pass unnoticed.
            if lease.deadline < decided_by:
                self.schedule.put(lease, lease.deadline)
            elif lease.slot is not None or lease.timer is not None:
                lease.unschedule()

        kind = leases[0].spec.kind
        keys = tuple([key for lease in leases for key in lease.spec.keys])
        tokens = [lease.token for lease in leases for _ in lease.spec.keys]
        marks = [(lease.stored, lease.spec.counters[0]) for lease in leases] if kind.shared else ()
        stands = partial(_stands, renewal, leases)
        batch = Batch(
            context,
            kind.extending(keys, tokens, ttl_ms(life), marks),
            leases,
            started,
            on_yes=partial(self._renewed, renewal),
            on_no=self._lose,
            on_unsure=self._failed,
            on_late=self._late,
            on_missing=self._repairs.missing,
            on_answer=partial(self._answered, stands),
            stands=stands,
        )
        batch.ask()
        if kind.repairing:
            self._repairs.complete(leases)
        if unread:
            self._watcher.watch([lease for lease in unread if lease.phase is Phase.HELD])
        return batch

    def _renewed(self, renewal: Renewal, batch: Batch, confirmed: Sequence[LeaseRecord]) -> None:
        context = self._context
        context.counters.renewals += len(confirmed)
        # The next renewal must be in a later slot than this renewal. Otherwise leases with the
        # shortest ttl would be renewed again and again without a pause.
        at = max(
            renew_at(renewal.started, renewal.ttl, context.draw()), context.clock() + RENEW_WIDTH
        )
        newest = []
        for lease in confirmed:
            if lease.renewed(renewal):
                lease.ballot = batch
                if lease.deadline > at and lease.spec.auto_extend and not lease.unconfirmed:
                    newest.append(lease)
                elif (
                    lease.spec.auto_extend
                    and not lease.unconfirmed
                    and lease.deadline != lease.ends_at
                ):
                    self.schedule.renew_before_deadline(lease)
                elif lease.slot is None and lease.timer is None:
                    # Another renewal is under way, or the lease must not be renewed. So only the
                    # deadline is scheduled here.
                    self.schedule.put(lease, lease.deadline)
        self.schedule.put_all(newest, at)
        if (report := context.report) is not None:
            report(LeasesRenewed(len(confirmed), context.clock() - renewal.started))

    def _answered(self, stands: Callable[[], bool], reply: Reply, index: int) -> None:
        """Report a node that refuses renewals. Report it again only after it has renewed a key.

        If a node lacks all keys, the script writes nothing. Its answer then does not show whether
        the node accepts renewals again.
        """
        if isinstance(reply, Refusal):
            if str(reply).startswith("NOSCRIPT") and not stands():
                # The node forgot the script, and did not get this renewal again.
                return
            if index not in self._refusing:
                self._refusing.add(index)
                node = self._context.fleet.nodes[index].address
                self._context.emit(
                    NodeDegraded(node, f"it refuses to renew leases: {harmless(str(reply))}")
                )
        elif self._refusing and (
            reply is ALL_OURS or (isinstance(reply, KeyStates) and reply.some_ours)
        ):
            self._refusing.discard(index)

    def _failed(self, lease: LeaseRecord) -> None:
        """Schedule another try soon, because no quorum can confirm this renewal any more."""
        self._again(lease, RETRY_SHARE)

    def _late(self, lease: LeaseRecord) -> None:
        """Schedule another try after a longer pause, because no quorum answered in time.

        A quick second try would add to the load of nodes that are busy.
        """
        self._again(lease, SILENT_SHARE)

    def _again(self, lease: LeaseRecord, share: float) -> None:
        self._context.counters.renewals_failed += 1
        now = self._context.clock()
        # The next renewal must be in a later slot than this renewal. Otherwise refusals, which may
        # arrive immediately, would cause renewals without a pause.
        at = min(now + max(lease.shortest_ttl * share, 2 * RENEW_WIDTH), lease.deadline)
        self.schedule.put(lease, at if lease.spec.auto_extend else lease.deadline)
        # The report comes last, because a listener may end the lease.
        if (report := self._context.report) is not None:
            report(
                RenewalFailed(
                    lease.spec.resource, lease.remaining(now), silent=share == SILENT_SHARE
                )
            )

    def _due(self, leases: set[LeaseRecord]) -> None:
        now = self._context.clock()
        soon = now + RENEW_WIDTH
        here = list(leases)
        for lease in here:
            lease.slot = lease.timer = None
        for lease in [lease for lease in here if lease.deadline <= now]:
            self._overdue(lease)
        unwatched: list[LeaseRecord] = []
        due: dict[tuple[float, int, bool], list[LeaseRecord]] = {}
        for lease in here:
            # `_overdue` above calls listeners, which may have ended this lease.
            if lease.phase is not Phase.HELD:
                continue
            last = not lease.spec.auto_extend or lease.deadline == lease.ends_at
            if lease.deadline <= soon and (last or lease.unconfirmed):
                self.schedule.watch_deadline(lease)
            elif not lease.watched:
                unwatched.append(lease)
            elif last:
                self.schedule.put(lease, lease.deadline)
            else:
                kept = ceil(max(0.0, lease.kept_until - now) / KEPT_WIDTH)
                alike = (lease.ttl, kept, lease.spec.kind.shared)
                due.setdefault(alike, []).append(lease)
        if unwatched:
            self._watcher.watch(unwatched)
            for lease in unwatched:
                if lease.phase is Phase.HELD:
                    self._schedule_next(lease)
        for (ttl, _, _), renewable in due.items():
            for part in parts(renewable):
                if held := [lease for lease in part if lease.phase is Phase.HELD]:
                    self.renew(held, ttl)

    def _schedule_next(self, lease: LeaseRecord) -> None:
        if not lease.spec.auto_extend or lease.deadline == lease.ends_at:
            self.schedule.put(lease, lease.deadline)
            return
        at = renew_at(lease.started, lease.ttl, self._context.draw())
        # The deadline of a new read lease may be nearer than the renewal of its grant.
        if (self._context.clock() + lease.deadline) / 2 > at:
            self.schedule.put(lease, at)
        else:
            self.schedule.renew_before_deadline(lease)


def _stands(renewal: Renewal, leases: Sequence[LeaseRecord]) -> bool:
    """Return True while a node that has not executed a renewal should still execute it.

    A renewal that is sent again after a later renewal would undo the later one. An abandoned or
    forsaken lease must expire at its deadline, so it must not be renewed again.
    """
    for lease in leases:
        if lease.phase is Phase.ABANDONED or lease.forsaken or not lease.is_latest(renewal):
            return False
    return any(
        lease.phase is Phase.HELD
        # Other readers of this process may use the keys of a released lease.
        or (lease.read_grant is not None and lease.read_grant.leases)
        for lease in leases
    )
