"""The waiting lines of one process: tasks that want the same keys, served in order of arrival.

Only the first task of a line asks the nodes; see `place.py` for its place among other processes.
What a quorum grants serves the line for a bounded run, one lease after the other, without a
question to the nodes (lock cohorting: Dice, Marathe, Shavit 2012). Then the nodes decide.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from aioredlock_ng._engine.waiting.standing import StandingLines
from aioredlock_ng.events import LockHandedOn

if TYPE_CHECKING:
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._engine.waiting.line import Contender, Line

__all__ = ["RUN", "RUN_TRIPS", "Lines"]

RUN = 0.02
"""Seconds for which a grant is passed on within the process at least. A change of process costs one
or two round trips, which is a tenth of it over loopback."""

RUN_TRIPS = 10
"""Round trips that a run lasts at least: far from the nodes a change of process costs more."""


class Lines(StandingLines):
    """All lines of one manager.

    Args:
        context: The engine's surroundings.
        manager: 16 hexadecimal digits that tell managers apart in the queues.

    Attributes:
        passing: False where each lease must have a token of its own. Then nothing is passed on.
    """

    def __init__(self, context: Context, manager: bytes) -> None:
        super().__init__(context, manager)
        self.passing = True

    def join(self, contender: Contender[Holding]) -> bool:
        """Add a task to its line.

        Returns:
            True for the first of a line that holds nothing: the caller makes an attempt at once.

        Raises:
            LockHeld: See `Contender.refuse_deadlock`.
        """
        line = None if contender.fair else self._lines.get(contender.keys)
        if line is None:
            line = self._new_line(contender.keys, alone=contender.fair)
        if line.holder is not None or self._others:
            contender.refuse_deadlock(self.holders(contender.keys))
        contender.line = line
        if line.contender is None and line.holder is None and not line.queue:
            # The place of a task that gave up in this tick: with it this one would overtake older waiters.
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
        """`contender` was granted this by an attempt, in its line or past all lines."""
        line = (
            contender.line
            or self._lines.get(contender.keys)
            or self._new_line(contender.keys, alone=False)
        )
        holding.line = line
        line.holder = holding
        line.run_until = now + max(RUN, RUN_TRIPS * (now - holding.started))
        if line.contender is contender:
            line.contender = None
            if line.place is not None:
                self._standing.pop(line.place.member, None)
                line.place.served(attempt)
                line.place = None

    def refused(self, contender: Contender[Holding], attempt: Round) -> None:
        """A quorum refused the attempt of a contender: it stands in the queues of the nodes."""
        line = contender.line
        if line is not None and line.contender is contender:
            self._place_of(line).stand(attempt.replies)

    def unreachable(self, contender: Contender[Holding]) -> None:
        """No quorum could be asked: the line leaves the queues, and asks again later."""
        line = contender.line
        if line is not None and line.contender is contender:
            self._place_of(line).back_off()

    def left_behind(self, contender: Contender[Holding]) -> bool:
        """True while the first of its line cannot ask a quorum, and this process holds none of its keys."""
        line = contender.line
        first = None if line is None else line.contender
        return first is not None and first.unreachable and not self.holders(contender.keys)

    def leave(self, contender: Contender[Holding]) -> None:
        """`contender` gave up. If it was the first, the next in line takes its place."""
        line = contender.line
        if line is None:
            return
        contender.line = None
        if line.contender is contender:
            line.contender = None
            # Not at once: a thousand waiters that fail one after the other would be a thousand calls deep.
            self._context.loop.call_soon(
                self._inherit, line, contender.asking, contender.unreachable
            )
        elif line.queue:
            line.queue.pop(contender, None)
            self._forget_idle(line)

    def successor(self, holding: Holding, now: float) -> Holding | None:
        """The next lease of a grant whose present lease ends now; None: the nodes must be asked."""
        line = holding.line
        if (
            line is None
            or line.holder is not holding
            or line.contender is not None
            or not line.queue
        ):
            return None
        if not holding.covered or now >= line.run_until:
            return None
        return next(iter(line.queue)).successor(holding, now)

    def pass_on(self, holding: Holding, successor: Holding) -> None:
        """Give the next in line its lease of the same grant."""
        line = holding.line
        assert line is not None
        assert line.queue
        contender, _ = line.queue.popitem(last=False)
        successor.line = line
        line.holder = successor
        contender.line = None
        self._context.counters.handoffs += 1
        self._context.counters.passed_on += 1
        contender.take(successor)

    def is_followed(self, contender: Contender[Holding]) -> bool:
        """True if the grant that it asks for now may be passed on to others in its line."""
        line = contender.line
        return (
            line is not None and bool(line.queue) and line.contender is contender and self.passing
        )

    def freed(self, holding: Holding) -> None:
        """A lease of this process is over: the next in line asks right behind the release."""
        line = holding.line
        if line is None or line.holder is not holding:
            return
        line.holder = None
        # A place without a first is about to be inherited, and asks by itself: never beside an attempt.
        if line.contender is None and line.place is None and line.queue:
            contender, _ = line.queue.popitem(last=False)
            line.contender = contender
            # It has waited for a holder, and not for the nodes.
            contender.unreachable = False
            self._context.counters.handoffs += 1
            contender.attempt()
            self._context.fleet.hurry()
            if (tell := self._context.tell) is not None:
                tell(LockHandedOn(holding.spec.resource))
        else:
            self._forget_idle(line)

    def _inherit(self, line: Line[Holding], asking: bool, unreachable: bool) -> None:
        """The first of a line gave up: the next one takes its place in the queues, with its ticket."""
        if line.contender is not None:
            return
        place = line.place
        # Behind a holder of this process the line stands in no queue: nobody would answer an offer.
        if line.queue and line.holder is None:
            line.contender, _ = line.queue.popitem(last=False)
            # It has not waited for the nodes, though its own first attempt is still to be answered.
            line.contender.unreachable = unreachable
            if place is None or not place.claim:
                if place is not None:
                    # Its back-off would end beside this attempt.
                    place.stop()
                line.contender.attempt()
            elif asking or not place.waiting:
                # Nodes that granted the attempt have taken this line out of their queues.
                place.look()
            return
        self._leave_place(line)
        self._forget_idle(line)
