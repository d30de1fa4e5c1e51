"""Renewals of leases: sent in batches, judged for each lease, and tried again.

No task runs here. The schedule calls this module with the holdings that are due. Their renewals
leave in a few commands, and the answers arrive as callbacks. A renewal compares the token of the
lease, so that it never extends the key of another lease of the same name. A renewal never sets a
missing key.
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
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._engine.keeping.repair import Repairs
    from aioredlock_ng._engine.keeping.watcher import Watcher

__all__ = ["Renewals"]


class Renewals:
    """Renews the holdings of one manager.

    Args:
        context: The engine's surroundings.
        watcher: Reads keys of holdings, so that the nodes track them.
        repairs: Sets keys again on nodes that lost them.
        lose: Called for a holding whose keys a quorum no longer has.
        overdue: Called for a holding whose deadline has passed.

    Attributes:
        schedule: The timers of the holdings.
    """

    def __init__(
        self,
        context: Context,
        watcher: Watcher,
        repairs: Repairs,
        lose: Callable[[Holding], None],
        overdue: Callable[[Holding], None],
    ) -> None:
        self._context = context
        self._watcher = watcher
        self._repairs = repairs
        self._lose = lose
        self._overdue = overdue
        self.schedule = Schedule(context, self._due, overdue)
        # Nodes whose last answer to a renewal was a refusal.
        self._refusing: set[int] = set()

    def renew(self, holdings: Sequence[Holding], ttl: float) -> Batch:
        """Send one batch. Its outcome moves deadlines, schedules another try, or declares a loss.

        Args:
            holdings: The holdings to renew, all of the same kind of lock. Their keys get the same
                life, so their minimum holds should end at about the same time.
            ttl: Their new ttl, in seconds from now.
        """
        context = self._context
        options = context.options
        started = context.clock()
        renewal = Renewal(started, ttl, deadline_of(started, ttl, options.drift(ttl)))
        decided_by = started + options.node_timeout + 2 * RENEW_WIDTH
        # An unwatched lease is watched now, because the renewal takes it out of the slot in which
        # it would have been watched. Watching also writes the label, which is due at
        # `labelled_until` or when the ttl grows.
        unread = [
            holding
            for holding in holdings
            if not holding.watched
            or (
                holding.labelled_until
                and (started >= holding.labelled_until or ttl > holding.longest_ttl)
            )
        ]
        life = ttl
        for holding in holdings:
            if holding.kept_until > started:
                # The keys must not expire before the end of `min_hold`, not even after a crash.
                life = max(life, kept_for(context, holding, started))
            holding.asked(renewal)
            if ttl > holding.longest_ttl:
                holding.longest_ttl = ttl
            # The callbacks of the batch schedule the holding again. A deadline that comes before
            # them needs its own entry, or it would pass unnoticed.
            if holding.deadline < decided_by:
                self.schedule.put(holding, holding.deadline)
            elif holding.slot is not None or holding.timer is not None:
                holding.unschedule()

        kind = holdings[0].spec.kind
        keys = tuple([key for holding in holdings for key in holding.spec.keys])
        tokens = [holding.token for holding in holdings for _ in holding.spec.keys]
        batch = Batch(
            context,
            kind.extending(keys, tokens, ttl_ms(life)),
            holdings,
            started,
            on_yes=partial(self._renewed, renewal),
            on_no=self._lose,
            on_unsure=self._failed,
            on_late=self._late,
            on_missing=self._repairs.missing,
            on_answer=self._answered,
            # A renewal that is sent again behind a later renewal would undo the later one.
            stands=lambda: all(holding.is_latest(renewal) for holding in holdings),
        )
        batch.ask()
        if kind.repairing:
            self._repairs.complete(holdings)
        if unread:
            self._watcher.watch([holding for holding in unread if holding.phase is Phase.HELD])
        return batch

    def _renewed(self, renewal: Renewal, batch: Batch, confirmed: Sequence[Holding]) -> None:
        context = self._context
        context.counters.renewals += len(confirmed)
        # The slot must be later than the present one. Otherwise the shortest leases would be
        # renewed in a loop.
        at = max(
            renew_at(renewal.started, renewal.ttl, context.draw()), context.clock() + RENEW_WIDTH
        )
        newest = []
        for holding in confirmed:
            if holding.renewed(renewal):
                holding.ballot = batch
                if holding.deadline > at and holding.spec.auto_extend and not holding.unconfirmed:
                    newest.append(holding)
                elif (
                    holding.spec.auto_extend
                    and not holding.unconfirmed
                    and holding.deadline != holding.ends_at
                ):
                    self.schedule.renew_before_deadline(holding)
                elif holding.slot is None and holding.timer is None:
                    # No further renewal is scheduled here: another one is under way, or none is
                    # wanted. The wheel still has to notice the deadline.
                    self.schedule.put(holding, holding.deadline)
        self.schedule.put_all(newest, at)
        if (report := context.report) is not None:
            report(LeasesRenewed(len(confirmed), context.clock() - renewal.started))

    def _answered(self, reply: Reply, index: int) -> None:
        """Report a node whose user may not renew, but only once before it renews a key again.

        An answer that all keys are missing proves nothing: the script writes nothing then.
        """
        if isinstance(reply, Refusal):
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

    def _failed(self, holding: Holding) -> None:
        """Try again soon: no quorum can confirm this renewal any more."""
        self._again(holding, RETRY_SHARE)

    def _late(self, holding: Holding) -> None:
        """Try again later: no quorum answered in time.

        A quick second try would add to the load of nodes that are busy.
        """
        self._again(holding, SILENT_SHARE)

    def _again(self, holding: Holding, share: float) -> None:
        self._context.counters.renewals_failed += 1
        now = self._context.clock()
        # The slot must be later than the present one. Otherwise refusals, which arrive at once,
        # would cause renewals in a loop.
        at = min(now + max(holding.shortest_ttl * share, 2 * RENEW_WIDTH), holding.deadline)
        self.schedule.put(holding, at if holding.spec.auto_extend else holding.deadline)
        # This report comes last, because a listener may end the lease.
        if (report := self._context.report) is not None:
            report(
                RenewalFailed(
                    holding.spec.resource, holding.remaining(now), silent=share == SILENT_SHARE
                )
            )

    def _due(self, holdings: set[Holding]) -> None:
        now = self._context.clock()
        soon = now + RENEW_WIDTH
        here = list(holdings)
        for holding in here:
            holding.slot = holding.timer = None
        for holding in [holding for holding in here if holding.deadline <= now]:
            self._overdue(holding)
        unwatched: list[Holding] = []
        due: dict[tuple[float, int], list[Holding]] = {}
        for holding in here:
            # A listener may have ended other leases when one was lost.
            if holding.phase is not Phase.HELD:
                continue
            last = not holding.spec.auto_extend or holding.deadline == holding.ends_at
            if holding.deadline <= soon and (last or holding.unconfirmed):
                self.schedule.watch_deadline(holding)
            elif not holding.watched:
                unwatched.append(holding)
            elif last:
                self.schedule.put(holding, holding.deadline)
            else:
                kept = ceil(holding.kept_until - now) if holding.kept_until > now else 0
                due.setdefault((holding.ttl, kept), []).append(holding)
        if unwatched:
            self._watcher.watch(unwatched)
            for holding in unwatched:
                if holding.phase is Phase.HELD:
                    self._schedule_next(holding)
        for (ttl, _), alike in due.items():
            for part in parts(alike):
                if held := [holding for holding in part if holding.phase is Phase.HELD]:
                    self.renew(held, ttl)

    def _schedule_next(self, holding: Holding) -> None:
        at = holding.deadline
        if holding.spec.auto_extend:
            at = min(at, renew_at(holding.started, holding.ttl, self._context.draw()))
        self.schedule.put(holding, at)
