"""Keeps holdings alive and notices their end: batched renewals, deadlines, loss. A renewal never re-creates a key.

No task runs here: one timer wheel hands over the holdings that are due, their renewals leave in a few commands, and the
answers come back as callbacks. A holding is renewed by its own token, never by the name of its resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.lease_state import Phase, Renewal
from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.refusals import harmless
from aioredlock_ng._core.replies import ALL_OURS, KeyStates
from aioredlock_ng._core.validity import (
    RETRY_SHARE,
    SILENT_SHARE,
    STALL_SHARE,
    deadline_of,
    renew_at,
    ttl_ms,
)
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._engine.keeping.batch import Batch, parts
from aioredlock_ng._engine.keeping.holding import Counted
from aioredlock_ng._engine.keeping.repair import Repairs
from aioredlock_ng._engine.keeping.watcher import Watcher
from aioredlock_ng._engine.wheel import Wheel
from aioredlock_ng._scripts import Command
from aioredlock_ng.events import (
    LeaseAbandoned,
    LeaseLost,
    LeaseReleased,
    LeasesRenewed,
    LockHandedOn,
    LossFound,
    NodeDegraded,
    RenewalFailed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.releases import Releases
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._engine.waiting.lines import Lines

__all__ = ["CLOSED", "Extender"]

RENEW_WIDTH = 0.02
"""Seconds of renewals that leave together."""

CLOSED = "its Redlock was closed"
_UNRENEWED = "its deadline passed before a quorum renewed it"
_MAX_HOLD = "held longer than max_hold"
_EXPIRED = "its deadline passed, and it was not to be renewed (auto_extend=False)"
_CAUSES = {CLOSED: "closed", _UNRENEWED: "unrenewed", _MAX_HOLD: "max_hold", _EXPIRED: "expired"}
"""`LeaseLost.cause` by the reason up to a ";"; any other says that the key is gone."""


class Extender:
    """Owns every holding of a manager from grant to end."""

    def __init__(self, context: Context, releases: Releases, lines: Lines) -> None:
        self._context = context
        self._releases = releases
        self._lines = lines
        self._repairs = Repairs(context)
        self.holdings: set[Holding] = set()
        self.watcher = Watcher(context, self.holdings, self._vanished, self.check, self._repairs)
        self._wheel: Wheel[Holding] = Wheel(context.loop, context.clock, RENEW_WIDTH, self._due)
        # Nodes whose last answer to a renewal was a refusal.
        self._refusing: set[int] = set()

    def adopt(self, holding: Holding) -> None:
        """Take over a holding that was just granted."""
        self.holdings.add(holding)
        at = holding.since + holding.spec.life.watch_after
        holding.slot = self._wheel.add(
            holding, at if holding.spec.max_hold is None else min(holding.deadline, at)
        )

    def watch(self, holding: Holding) -> None:
        """Verify it now and notice each change from now on, as later for any lease."""
        if holding.phase is Phase.HELD and not holding.watched:
            self.watcher.watch([holding])

    def pass_on(self, holding: Holding) -> bool:
        """Give it up to the next in line with its grant; False where the nodes must be asked: then `release` does."""
        if holding.line is None or not holding.line.queue:
            return False
        now = self._context.clock()
        successor = self._lines.successor(holding, now)
        if successor is None:
            return False
        holding.end(Phase.RELEASED)
        self._forget(holding)
        self._lines.pass_on(holding, successor)
        if (tell := self._context.tell) is not None:
            tell(LockHandedOn(holding.spec.resource))
        self._released(holding, now)
        return True

    def release(self, holding: Holding) -> Round | None:
        """Give it up: the release is queued when this returns, and so is the next local waiter's attempt.

        Returns:
            The round, or None when it was over already.
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
        if (tell := self._context.tell) is not None and holding.told:
            tell(LeaseReleased(holding.spec.resource, holding.token_prefix, now - holding.since))

    def abandon(self, holding: Holding) -> None:
        """Stop renewing; it expires by itself, and is not released. One that is over already is lost."""
        self.check(holding)
        if holding.phase is Phase.HELD:
            holding.end(Phase.ABANDONED)
            self._forget(holding)
            self._lines.freed(holding)
            if holding.told:
                self.tell_over(holding)

    def lose(self, holding: Holding, reason: str) -> None:
        """Declare it lost, once: tell the holder, release what may be left, let the next one try."""
        if holding.phase is not Phase.HELD:
            return
        context = self._context
        context.counters.lost += 1
        now = context.clock()
        # First: a thread may read it as soon as the lease is over.
        holding.lost_at = min(now, holding.deadline)
        holding.end(Phase.LOST, reason)
        self._end(holding, now)
        # Who renews it this very moment is told by an exception.
        if holding.asking is None:
            holding.tell_body()
        if holding.told:
            self.tell_over(holding)

    def found_lost(self, holding: Holding, reason: str) -> None:
        """The answers to its release say that it was lost before."""
        holding.reason = reason
        holding.lost_at = self._context.clock()
        self._context.counters.lost += 1
        if holding.told:
            self._context.emit(LossFound(holding.spec.resource, holding.token_prefix, reason))

    def tell_over(self, holding: Holding) -> None:
        """To everybody who listens: what a caller was given is lost or abandoned."""
        context, resource = self._context, holding.spec.resource
        if holding.phase is Phase.LOST:
            cause = _CAUSES.get(holding.reason.partition(";")[0], "gone")
            context.emit(
                LeaseLost(
                    resource,
                    holding.token_prefix,
                    holding.reason,
                    holding.lost_at - holding.since,
                    cause,
                )
            )
        elif context.tell is not None:
            context.tell(
                LeaseAbandoned(resource, holding.token_prefix, context.clock() - holding.since)
            )

    def check(self, holding: Holding) -> None:
        """Declare the loss of a holding whose deadline has passed though its timer has not come round yet.

        Only on the event loop.
        """
        if holding.phase is Phase.HELD and holding.remaining(self._context.clock()) <= 0.0:
            self._overdue(holding)

    def renew(self, holdings: Sequence[Holding], ttl: float) -> Batch:
        """Send one batch now; the outcome moves deadlines, schedules another try, or declares a loss.

        Args:
            holdings: Whom to renew.
            ttl: Their life from now, seconds.
        """
        context = self._context
        options = context.options
        started = context.clock()
        renewal = Renewal(started, ttl, deadline_of(started, ttl, options.drift(ttl)))
        decided_by = started + options.node_timeout + 2 * RENEW_WIDTH
        # A label lives by the ttl; and who is extended early leaves the slot in which it would have begun to be watched.
        unread = [
            holding
            for holding in holdings
            if not holding.watched
            or (
                holding.labelled_until
                and (started >= holding.labelled_until or ttl > holding.longest_ttl)
            )
        ]
        for holding in holdings:
            holding.asked(renewal)
            if ttl > holding.longest_ttl:
                holding.longest_ttl = ttl
            # The outcome puts it back on the wheel; before that its deadline must not pass unseen.
            if holding.deadline < decided_by:
                self._put(holding, holding.deadline)
            elif holding.slot is not None or holding.timer is not None:
                holding.unschedule()

        def renewed(batch: Batch, confirmed: Sequence[Holding]) -> None:
            context.counters.renewals += len(confirmed)
            # Never in the slot that runs now: the shortest leases would be renewed in a hot loop.
            at = max(renew_at(started, ttl, context.draw()), context.clock() + RENEW_WIDTH)
            newest = []
            for holding in confirmed:
                if holding.renewed(renewal):
                    holding.ballot = batch
                    if (
                        holding.deadline > at
                        and holding.spec.auto_extend
                        and not holding.unconfirmed
                    ):
                        newest.append(holding)
                    elif (
                        holding.spec.auto_extend
                        and not holding.unconfirmed
                        and holding.deadline != holding.ends_at
                    ):
                        self._renew_before_deadline(holding)
                    elif holding.slot is None and holding.timer is None:
                        # Asked for again meanwhile, or not to be: its deadline must not pass unseen either way.
                        self._put(holding, holding.deadline)
            self._put_all(newest, at)
            if (tell := context.tell) is not None:
                tell(LeasesRenewed(len(confirmed), context.clock() - started))

        kind = holdings[0].spec.kind
        keys = tuple([key for holding in holdings for key in holding.spec.keys])
        tokens = [holding.token for holding in holdings for _ in holding.spec.keys]
        batch = Batch(
            context,
            Command(kind.extend, keys, (ttl_ms(ttl), *tokens), tracked=True),
            holdings,
            started,
            on_yes=renewed,
            on_no=self._vanished,
            on_unsure=self._failed,
            on_late=self._late,
            on_missing=self._repairs.missing,
            on_answer=self._answered,
            # Sent again behind a later renewal it would undo that one.
            stands=lambda: all(holding.is_latest(renewal) for holding in holdings),
        )
        batch.ask()
        if kind.repairing:
            self._repairs.complete(holdings)
        if unread:
            self.watcher.watch([holding for holding in unread if holding.phase is Phase.HELD])
        return batch

    def _answered(self, reply: Reply, index: int) -> None:
        """Warn of the first renewal that a node refuses, until it renews a key again; a missing key takes no right."""
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

    def _vanished(self, holding: Holding) -> None:
        self.lose(holding, "a quorum of nodes no longer holds its key")

    def _failed(self, holding: Holding) -> None:
        """No quorum can renew it this time: again, faster, until the deadline."""
        self._again(holding, RETRY_SHARE)

    def _late(self, holding: Holding) -> None:
        """No quorum has answered in time: again, but not so soon. Nodes that are busy would be kept busy by it."""
        self._again(holding, SILENT_SHARE)

    def _again(self, holding: Holding, share: float) -> None:
        self._context.counters.renewals_failed += 1
        now = self._context.clock()
        # Never in the slot that runs now: refusals come back at once, and would be answered in a hot loop.
        at = min(now + max(holding.shortest_ttl * share, 2 * RENEW_WIDTH), holding.deadline)
        self._put(holding, at if holding.spec.auto_extend else holding.deadline)
        # Last: who is told may end the lease.
        if (tell := self._context.tell) is not None:
            tell(
                RenewalFailed(
                    holding.spec.resource, holding.remaining(now), silent=share == SILENT_SHARE
                )
            )

    def _overdue(self, holding: Holding) -> None:
        if holding.deadline == holding.ends_at:
            self.lose(holding, _MAX_HOLD)
        elif holding.spec.auto_extend or holding.unconfirmed:
            self.lose(holding, _UNRENEWED + self._standstill(holding))
        else:
            self.lose(holding, _EXPIRED)

    def _standstill(self, holding: Holding) -> str:
        """Say how long this process's own event loop kept the renewals waiting, where that was long enough to matter."""
        now = self._context.clock()
        stall = max(now - holding.deadline, self._wheel.stall(holding.started, now))
        return (
            f"; the event loop stood still for {stall:.1f} s"
            if stall >= holding.ttl * STALL_SHARE
            else ""
        )

    def close(self) -> None:
        """Stop all timers."""
        self._wheel.stop()

    def _schedule(self, holding: Holding) -> None:
        at = holding.deadline
        if holding.spec.auto_extend:
            at = min(at, renew_at(holding.started, holding.ttl, self._context.draw()))
        self._put(holding, at)

    def _put(self, holding: Holding, at: float) -> None:
        holding.unschedule()
        holding.slot = self._wheel.add(holding, at)

    def _put_all(self, holdings: Sequence[Holding], at: float) -> None:
        if holdings:
            slot = self._wheel.slot(at)
            for holding in holdings:
                if holding.slot is not None or holding.timer is not None:
                    holding.unschedule()
                holding.slot = slot
            slot.update(holdings)

    def _due(self, holdings: set[Holding]) -> None:
        now = self._context.clock()
        soon = now + RENEW_WIDTH
        here = list(holdings)
        for holding in here:
            holding.slot = holding.timer = None
        for holding in [holding for holding in here if holding.deadline <= now]:
            self._overdue(holding)
        unwatched: list[Holding] = []
        due: dict[float, list[Holding]] = {}
        for holding in here:
            # Who was told of those losses may have ended others.
            if holding.phase is not Phase.HELD:
                continue
            last = not holding.spec.auto_extend or holding.deadline == holding.ends_at
            if holding.deadline <= soon and (last or holding.unconfirmed):
                self._watch_deadline(holding)
            elif not holding.watched:
                unwatched.append(holding)
            elif last:
                self._put(holding, holding.deadline)
            elif holding.ttl in due:
                due[holding.ttl].append(holding)
            else:
                due[holding.ttl] = [holding]
        if unwatched:
            self.watcher.watch(unwatched)
            for holding in unwatched:
                if holding.phase is Phase.HELD:
                    self._schedule(holding)
        for ttl, alike in due.items():
            for part in parts(alike):
                if held := [holding for holding in part if holding.phase is Phase.HELD]:
                    self.renew(held, ttl)

    def _renew_before_deadline(self, holding: Holding) -> None:
        """A timer of its own, for the slot of so near a deadline may begin a moment before it, or have begun."""
        holding.unschedule()
        left = max(0.0, holding.deadline - self._context.clock())
        holding.timer = self._context.loop.call_later(left / 2, self._due, {holding})

    def _watch_deadline(self, holding: Holding) -> None:
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
            self._watch_deadline(holding)

    def _end(self, holding: Holding, now: float) -> Round:
        self._forget(holding)
        if holding.repairing:
            # A late answer to the acquire may have been noted over the mark of a repair that is still under way.
            for index in range(len(holding.granted)):
                if holding.repairing & (1 << index):
                    holding.granted[index] = None
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
