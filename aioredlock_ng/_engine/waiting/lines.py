"""The waiting lines of one process: each serves its tasks in order of arrival.

Only the contender of a line asks the nodes; `place.py` has its place among other processes. A grant
serves the line for a bounded run, one lease after the other, without a question to the nodes (lock
cohorting: Dice, Marathe, Shavit 2012). After the run the nodes decide which process is next.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from aioredlock_ng._core.slots import free_slot
from aioredlock_ng._engine.waiting.standing import StandingLines
from aioredlock_ng.events import LockHandedOn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._engine.spec import LockSpec, Numbered
    from aioredlock_ng._engine.waiting.line import Contender, Line

__all__ = ["RUN", "RUN_TRIPS", "Lines"]

RUN = 0.02
"""Seconds that a run lasts at least. A change of process costs one or two round trips, which is a
tenth of a run over loopback."""

RUN_TRIPS = 10
"""Round trips that a run lasts at least. If the nodes are far away, a change of process takes
longer."""


class Lines(StandingLines):
    """Serves the waiting lines of one manager.

    Args:
        context: The engine's surroundings.
        manager: 16 hexadecimal digits that tell managers apart in the queues.

    Attributes:
        passing: False if each lease must have a token of its own. Then no grant is passed on.
    """

    def __init__(self, context: Context, manager: bytes) -> None:
        super().__init__(context, manager)
        self.passing = True

    def join(self, contender: Contender[Holding]) -> bool:
        """Add a task to its line.

        Returns:
            True if the task must ask the nodes at once: nothing is ahead of it in this process.

        Raises:
            LockHeld: The task would wait for itself. See `Contender.refuse_deadlock`.
        """
        line = None if contender.fair else self._lines.get(contender.line_key)
        if line is None:
            line = self._new_line(contender, alone=contender.fair)
        full = line.full
        if full or (self._others and not self._others.keys().isdisjoint(contender.keys)):
            contender.refuse_deadlock(self.holders(contender.keys))
        contender.line = line
        if line.contender is None and not full and not line.queue:
            # A task that gave up in this tick has left its place. With its ticket the new task
            # would overtake older waiters of other processes.
            if line.place is not None:
                self._leave_place(line)
            line.contender = contender
            return True
        if line.queue is None:
            line.queue = OrderedDict()
        line.queue[contender] = None
        return False

    def granted(
        self, contender: Contender[Holding], holding: Holding, now: float, attempt: Round
    ) -> None:
        """Record that an attempt was granted, and begin a run.

        Args:
            contender: The acquisition, in a line or not.
            holding: Its lease.
            now: Instant by the engine's clock.
            attempt: The round that was granted.
        """
        line = self._line_of(contender)
        holding.line = line
        line.holders[holding] = None
        if holding.spec.number is not None:
            line.taken.add(holding.spec.number)
        holding.run_until = now + max(RUN, RUN_TRIPS * (now - holding.started))
        if line.contender is contender:
            line.contender = None
            line.scarce = line.place is not None and line.slots is not None
            if line.place is not None:
                self._standing.pop(line.place.member, None)
                line.place.served(attempt)
                line.place = None
            if line.queue and not line.full:
                # Another slot of the semaphore may be free. A quorum has just answered.
                following = self._next(line)
                following.unreachable = False
                following.attempt()

    def refused(self, contender: Contender[Holding], attempt: Round) -> None:
        """Put the line of a contender into the queues, after a quorum refused its attempt."""
        line = contender.line
        if line is not None and line.contender is contender:
            self._place_of(line).stand(attempt.replies)

    def unreachable(self, contender: Contender[Holding]) -> None:
        """Take the line of a contender out of the queues, after no quorum could be asked."""
        line = contender.line
        if line is not None and line.contender is contender:
            self._place_of(line).back_off()

    def left_behind(self, contender: Contender[Holding]) -> bool:
        """Return True if a task waits for nodes that its line cannot reach.

        A line behind a lease of this process waits for that lease, and not for the nodes.
        """
        line = contender.line
        first = None if line is None else line.contender
        return first is not None and first.unreachable and not self.holders(contender.keys)

    def leave(self, contender: Contender[Holding]) -> None:
        """Remove a task that gave up. If it contended, the next task in line takes its place."""
        line = contender.line
        if line is None:
            return
        contender.line = None
        if line.contender is contender:
            line.contender = None
            # The next task asks in a later tick. Otherwise a thousand waiters that fail one after
            # the other would nest a thousand calls.
            self._context.loop.call_soon(
                self._inherit, line, contender.asking, contender.unreachable
            )
        elif line.queue:
            line.queue.pop(contender, None)
            self._forget_idle(line)

    def successor(self, holding: Holding, now: float) -> Holding | None:
        """Return the next lease of a grant whose lease ends; None if the nodes must be asked."""
        line = holding.line
        if line is None or not holding.covered or now >= holding.run_until:
            return None
        heir = self._heir(line) if holding in line.holders else None
        return None if heir is None else heir.successor(holding, now)

    def pass_on(self, holding: Holding, successor: Holding) -> None:
        """Give the next task in line its lease of the same grant. See `successor`."""
        line = holding.line
        assert line is not None
        contender = self._heir(line)
        assert contender is not None
        if contender is line.contender:
            line.contender = None
            self._context.loop.call_soon(self._inherit, line, False, False)
        elif line.queue:
            line.queue.pop(contender)
        successor.line = line
        successor.run_until = holding.run_until
        del line.holders[holding]
        line.holders[successor] = None
        contender.line = None
        self._context.counters.handoffs += 1
        self._context.counters.passed_on += 1
        contender.take(successor)

    def is_followed(self, contender: Contender[Holding]) -> bool:
        """Return True if other tasks wait for the grant that the contender asks for now."""
        line = contender.line
        if line is None or line.contender is not contender or (line.scarce and line.place is None):
            return False
        return bool(line.queue) and self.passing

    def freed(self, holding: Holding) -> None:
        """Let the next task in line ask, right behind the release of a lease that is over."""
        line = holding.line
        if line is None or holding not in line.holders:
            return
        del line.holders[holding]
        self._remember(line, holding.spec.number)
        # A place without a contender waits for `_inherit`, which lets the next task ask. A second
        # attempt must not run beside the attempt of that task.
        if line.contender is None and line.place is None and line.queue:
            contender = self._next(line)
            # The task has waited for a lease of this process, and not for the nodes.
            contender.unreachable = False
            self._context.counters.handoffs += 1
            contender.attempt()
            self._context.fleet.hurry()
            if (report := self._context.report) is not None:
                report(LockHandedOn(holding.spec.resource))
        else:
            self._forget_idle(line)

    def _inherit(self, line: Line[Holding], asking: bool, unreachable: bool) -> None:
        """Give the place and the ticket of a contender that gave up to the next task in line."""
        if line.contender is not None:
            return
        place = line.place
        # Behind a lease of this process the line stands in no queue, because no task would use an
        # offer.
        if line.queue and not line.full:
            # The task has made no attempt yet. The latest attempt of its line shows whether a
            # quorum can be reached.
            contender = self._next(line)
            contender.unreachable = unreachable
            if place is None or not place.claim:
                if place is not None:
                    # Without this the end of the back-off would start a second attempt.
                    place.stop()
                contender.attempt()
            elif asking or not place.waiting:
                # Nodes that granted the previous attempt removed the line from their queues. A look
                # puts it back.
                place.look()
            return
        self._leave_place(line)
        self._forget_idle(line)

    def choose(self, contender: Contender[Holding], slots: Numbered, number: int) -> LockSpec:
        """Return the slot of a semaphore that an attempt asks for.

        The slot that this process released last is most probably still free.

        Args:
            contender: The acquisition, in a line or not.
            slots: The slots of the semaphore.
            number: The slot that the nodes may grant; 0 if it is not known.
        """
        line = self._line_of(contender)
        if not number:
            number = free_slot(line.taken, list(line.recent), slots.limit, self._context.draw())
        # Another task of this process may ask for the slot or have it. The end of this attempt must
        # not take the slot out of the books of that task.
        contender.booked = None if number in line.taken else line
        line.taken.add(number)
        return slots[number]

    def pick(self, contender: Contender[Holding], free: Sequence[int]) -> int:
        """Return a slot that no other task of this process has or asks for; 0 if there is none.

        The choice is random, so that clients that look at the same time ask for different slots.
        """
        line = contender.line or self._lines.get(contender.line_key)
        left = [number for number in free if line is None or number not in line.taken]
        return left[int(self._context.draw() * len(left))] if left else 0

    def unused(self, contender: Contender[Holding], number: int) -> None:
        """Record that an attempt for a slot of a semaphore has failed."""
        # The contender may have left its line by now.
        line, contender.booked = contender.booked, None
        if line is not None:
            self._unbook(line, number)
            self._forget_idle(line)

    def _remember(self, line: Line[Holding], number: int | None) -> None:
        if number is not None:
            self._unbook(line, number)
            line.recent.pop(number, None)
            line.recent[number] = None

    def _unbook(self, line: Line[Holding], number: int) -> None:
        # Another attempt of this process may have been granted this slot meanwhile.
        if all(holding.spec.number != number for holding in line.holders):
            line.taken.discard(number)

    def _line_of(self, contender: Contender[Holding]) -> Line[Holding]:
        return (
            contender.line
            or self._lines.get(contender.line_key)
            or self._new_line(contender, alone=False)
        )

    def _heir(self, line: Line[Holding]) -> Contender[Holding] | None:
        """Return the task that gets the next grant which is passed on.

        It is the contender, unless its attempt is under way. Only the line of a semaphore has a
        lease and a contender at the same time for long.
        """
        contender = line.contender
        if contender is not None and not contender.asking:
            return contender
        return next(iter(line.queue)) if line.queue else None

    def _next(self, line: Line[Holding]) -> Contender[Holding]:
        """Make the first task in line its contender, and return it."""
        assert line.queue
        line.contender, _ = line.queue.popitem(last=False)
        return line.contender
