"""The waiting lines of one process: each serves its tasks in order of arrival.

Only the contender of a line, its first task, asks the nodes. `place.py` contains the place of a
line in the queues of the nodes. `passing_on.py` lets a grant serve several tasks of the line.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from aioredlock_ng._core.replies import Released
from aioredlock_ng._core.tickets import LARGEST_TICKET
from aioredlock_ng._engine.keeping.read_grant import ReadGrant
from aioredlock_ng._engine.waiting.passing_on import PassingOn, length_of_run
from aioredlock_ng.errors import LockHeld
from aioredlock_ng.events import LockHandedOver

if TYPE_CHECKING:
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.waiting.line import Contender, Line

__all__ = ["Lines"]


class Lines(PassingOn):
    """Serves the waiting lines of one manager.

    Args:
        manager: 16 hexadecimal digits by which the queues distinguish managers.

    Attributes:
        passing: True if grants may be passed on. False if each lease must have its own token.
    """

    def __init__(self, context: Context, manager: bytes) -> None:
        super().__init__(context, manager)
        self.passing = True

    def join(self, contender: Contender[LeaseRecord]) -> bool:
        """Add a task to its line.

        Returns:
            True if the task must ask the nodes now, because it need not wait for another task of
            this process. False if the task waits, or shares a read grant already.

        Raises:
            LockHeld: Raised if the task would wait for itself. See `Contender.refuse_deadlock`.
        """
        line = None if contender.fair else self._lines.get(contender.line_key)
        if line is None:
            line = self._new_line(contender, alone=contender.fair)
        full = line.full
        if line.shared:
            rivals = self._has_rivals(contender.keys)
        elif line.slots is not None:
            rivals = self._others_may_complete(line)
        else:
            rivals = not self._others.keys().isdisjoint(contender.keys)
        if full or rivals:
            try:
                contender.refuse_deadlock(self.holders(contender.keys))
            except LockHeld:
                self._forget_idle(line)
                raise
        contender.line = line
        if line.shared and self._share_now(line, contender):
            return False
        if line.contender is None and not full and not line.queue:
            # The line may still have the place of a task that gave up in this tick. The ticket of
            # this place would let the new task overtake older waiters of other processes. So the
            # line leaves the place.
            if line.place is not None:
                self._leave_place(line)
            line.contender = contender
            if self._must_queue(line) or (line.released is not None and self._queue_shown(line)):
                # An attempt would most probably be refused. A quorum has just sent a message or an
                # answer, so the task can reach a quorum.
                contender.unreachable = False
                self._place_of(line).stand()
                return False
            return True
        if line.queue is None:
            line.queue = OrderedDict()
        line.queue[contender] = None
        return False

    def granted(
        self, contender: Contender[LeaseRecord], lease: LeaseRecord, now: float, attempt: Round
    ) -> None:
        """Record that an attempt was granted, and begin the run of the grant.

        The contender may be an acquisition outside of any line.
        """
        line = self._line_of(contender)
        lease.line = line
        line.holders[lease] = None
        if lease.spec.number is not None:
            line.taken.add(lease.spec.number)
        slots = 1 if line.slots is None else line.slots.limit
        lease.run_until = now + length_of_run(now - lease.started, slots)
        if line.shared:
            # No writer waited on a quorum of nodes when they granted, so older grants may be shared
            # too.
            line.shared_until = lease.run_until
            lease.read_grant = ReadGrant(lease)
        if line.contender is contender:
            line.contender = None
            line.trip = 0.0 if line.place is None else now - lease.started
            tickets_known = (
                line.place is not None and line.place.tickets_at >= lease.started - line.trip
            )
            if line.place is not None:
                self._standing.pop(line.place.member, None)
                line.place.served(attempt)
                line.place = None
            if line.shared:
                self._share_with_all(line)
            if line.queue and not line.full:
                # Another slot of the semaphore may be free, or the nodes may grant to a further
                # reader. A quorum has just answered, so the next task can reach a quorum.
                following = self._next(line)
                following.unreachable = False
                if tickets_known:
                    # The line had to queue for this slot. Another attempt would most probably be
                    # refused, and show tickets that are known already. So the next task enters the
                    # queue without an attempt.
                    self._place_of(line).stand()
                else:
                    following.attempt()
        if self._writer_reported(line, lease.started):
            # The nodes reported a writer that came after their offers to this line. The tasks that
            # waited before the writer share the grant, but later tasks must not.
            line.shared_until = 0.0

    def refused(self, contender: Contender[LeaseRecord], attempt: Round) -> None:
        """Put the line of a contender into the queues, because its attempt was refused."""
        line = contender.line
        if line is not None and line.contender is contender:
            self._place_of(line).stand(attempt.replies)

    def unreachable(self, contender: Contender[LeaseRecord]) -> None:
        """Leave the queues and retry later, because a contender's attempt reached no quorum."""
        line = contender.line
        if line is not None and line.contender is contender:
            self._back_off(line)

    def fail_behind(self, contender: Contender[LeaseRecord], attempt: Round, why: str) -> None:
        """End the `fail_fast` tasks behind a contender, because no quorum can grant its attempt.

        `why` is the reason for their errors. The contender itself may wait on, and would otherwise
        keep these tasks waiting.
        """
        line = contender.line
        if line is not None and line.contender is contender:
            for waiter in [waiter for waiter in line.queue or () if waiter.spec.fail_fast]:
                waiter.fail_with(attempt, why)

    def left_behind(self, contender: Contender[LeaseRecord]) -> bool:
        """Return True if a task waits because its line cannot reach a quorum.

        If this process has the lock, or all slots of the semaphore, the line waits for these
        leases, and not for the nodes.
        """
        line = contender.line
        if line is None or line.full:
            return False
        if line.slots is None and self.excluding(contender.keys, shared=line.shared):
            return False
        # Several calls may time out in one tick, and the contender may be one of them. Then only
        # the line knows whether the contender reached a quorum.
        return (line if line.contender is None else line.contender).unreachable

    def leave(self, contender: Contender[LeaseRecord]) -> None:
        """Remove a task that gave up. If it was the contender, the next task follows."""
        line = contender.line
        if line is None:
            return
        contender.line = None
        if line.contender is contender:
            line.contender, line.unreachable = None, contender.unreachable
            # The attempt of the next task begins in a later tick. Otherwise, if a thousand waiters
            # failed one after the other, a thousand calls would be nested.
            self._context.loop.call_soon(self._inherit, line, contender.asking)
        elif line.queue:
            line.queue.pop(contender, None)
            self._forget_idle(line)

    def is_followed(self, contender: Contender[LeaseRecord]) -> bool:
        """Return True if other tasks wait for the grant that the contender asks for now."""
        line = contender.line
        if line is None or line.contender is not contender or line.shared:
            return False
        return bool(line.queue) and self.passing

    def freed(self, lease: LeaseRecord, release: Round | None = None) -> None:
        """Let the next task in line ask the nodes, directly after the release of an ended lease."""
        line = lease.line
        if line is None or lease not in line.holders:
            return
        del line.holders[lease]
        line.released = None
        self._remember(line, lease.spec.number)
        # If the line stands in the queues but no task asks for it, `_inherit` will soon begin the
        # next task's attempt. A second attempt of the line must not run at the same time.
        if line.contender is None and line.place is None and line.queue:
            contender = self._next(line)
            # Until now the task waited for a lease of this process, so the nodes do not count as
            # unreachable.
            contender.unreachable = False
            self._context.counters.hand_overs += 1
            contender.attempt()
            self._context.fleet.hurry()
            if (report := self._context.report) is not None:
                report(LockHandedOver(lease.spec.resource))
        else:
            if release is not None and line.trip and line.slots is None:
                line.released = release.replies, release.started
            self._forget_idle(line)

    def _queue_shown(self, line: Line[LeaseRecord]) -> bool:
        """Return True if the latest release has just shown the tickets of other waiters.

        In this case the key was offered to another process. An attempt would most probably be
        refused, and would show the same tickets again.
        """
        assert line.released is not None
        (replies, began), line.released = line.released, None
        tickets = [reply.ticket for reply in replies if type(reply) is Released]
        shown = [ticket for ticket in tickets if 0 < ticket < LARGEST_TICKET]
        context = self._context
        # Processes that queue within two round trips of each other may be served in any order. If
        # the answers are older, this task could overtake waiters whose tickets the answers do not
        # show.
        if len(shown) < context.quorum or context.clock() - began > 2 * line.trip:
            return False
        context.tickets.see(max(shown))
        return True

    def _inherit(self, line: Line[LeaseRecord], asking: bool) -> None:
        """Let the next task in line inherit the place and ticket of a contender that gave up."""
        if line.contender is not None:
            return
        place = line.place
        # While this process holds the lock, the line stands in no queue, because no task would use
        # an offer.
        if line.queue and not line.full:
            # The task has made no attempt yet. The latest attempt of its line shows whether a
            # quorum can be reached.
            contender = self._next(line)
            contender.unreachable = line.unreachable
            if place is None or not place.claim:
                if place is not None:
                    # Without this stop, the end of the back-off would start a second attempt.
                    place.stop()
                contender.attempt()
            elif asking:
                # Nodes that granted the previous attempt removed the line from their queues. A
                # refresh puts the line into these queues again.
                place.refresh()
            elif not place.waiting and (contender.spec.fail_fast or not place.alarm.is_set):
                # No attempt of the line is under way or scheduled, or the next task must not wait
                # for it. If this task only entered the queues, it would not notice the missing
                # quorum for a `node_timeout`, and a thousand tasks would fail one by one.
                place.wake("fallback")
            return
        self._leave_place(line)
        self._forget_idle(line)

    def _next(self, line: Line[LeaseRecord]) -> Contender[LeaseRecord]:
        """Make the first task in line its contender, and return it."""
        assert line.queue
        line.contender, _ = line.queue.popitem(last=False)
        return line.contender
