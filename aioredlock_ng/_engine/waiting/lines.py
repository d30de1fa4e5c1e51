"""The waiting lines of one process: tasks that want the same keys, served in order of arrival.

Only the first task of a line asks the nodes; see `place.py` for its place among other processes.
What a quorum grants serves the line for a bounded run, one lease after the other, without a
question to the nodes (lock cohorting: Dice, Marathe, Shavit 2012). Then the nodes decide.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.tickets import member_of, message_of
from aioredlock_ng._core.votes import Dropped, Unsent, is_granted
from aioredlock_ng._engine.waiting.place import Place, leaving
from aioredlock_ng.events import LockHandedOn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aioredlock_ng._core.tickets import WakeCause
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.holding import Holding

__all__ = ["RUN", "RUN_TRIPS", "Contender", "Line", "Lines"]

RUN = 0.02
"""Seconds for which a grant is passed on within the process at least. A change of process costs one
or two round trips, which is a tenth of it over loopback."""

RUN_TRIPS = 10
"""Round trips that a run lasts at least: far from the nodes a change of process costs more."""

_MOST_IDLE = 4096
"""The number of lines above which a line without tasks is dropped. So many lines take about 1 MB."""


class Contender(Protocol):
    """One acquisition that waits.

    Attributes:
        keys: What it wants.
        fair: True where it stands in the queues by itself.
        line: Where it waits, from `Lines.join` on.
        asking: True while an attempt of it is under way.
        unreachable: True while its last attempt could not ask a quorum.
    """

    keys: tuple[bytes, ...]
    fair: bool
    line: Line | None
    unreachable: bool

    @property
    def asking(self) -> bool:
        """See above."""

    def attempt(self, claim: bytes = b"", cause: WakeCause | None = None) -> None:
        """Ask all nodes; with the claim of a waiter, and what woke it."""

    def successor(self, holding: Holding, now: float) -> Holding | None:
        """The lease that it would have by the grant of this one, which ends; None: it has to ask."""

    def take(self, holding: Holding) -> None:
        """Have this lease from now on."""

    def doubt(self, index: int | None = None) -> None:
        """Pass on nothing of what the attempt under way may be granted; by node `index`, or by all (None)."""

    def give_up(self, error: BaseException | None) -> None:
        """End it."""

    def refuse_deadlock(self, holders: Sequence[Holding]) -> None:
        """Raise `LockHeld` if it would wait for its own task, which holds one of these for ever."""


class Line:
    """The tasks of one process that want the same keys.

    Attributes:
        keys: The keys.
        number: Tells the lines of a process apart.
        contender: The task that asks the nodes or stands in their queues.
        queue: The tasks behind it, in order of arrival.
        holder: The lease that the process has.
        place: Its place in the queues on the nodes, once an attempt was refused.
        run_until: Instant at which the process stops passing the grant on.
    """

    __slots__ = ("contender", "holder", "keys", "number", "place", "queue", "run_until")

    def __init__(self, keys: tuple[bytes, ...], number: int) -> None:
        self.keys = keys
        self.number = number
        self.contender: Contender | None = None
        self.queue: OrderedDict[Contender, None] | None = None
        self.holder: Holding | None = None
        self.place: Place | None = None
        self.run_until = 0.0

    @property
    def occupied(self) -> bool:
        """True while a task waits or holds here, or the line has a place in the queues."""
        return (
            self.contender is not None
            or self.holder is not None
            or bool(self.queue)
            or self.place is not None
        )


class Lines:
    """All lines of one manager.

    Args:
        context: The engine's surroundings.
        manager: 16 hexadecimal digits that tell managers apart in the queues.

    Attributes:
        passing: False where each lease must have a token of its own. Then nothing is passed on.
    """

    def __init__(self, context: Context, manager: bytes) -> None:
        self._context = context
        self._manager = manager
        self._lines: dict[tuple[bytes, ...], Line] = {}
        # Lines of several keys, and those of `fair` waiters, by each of their keys.
        self._others: dict[bytes, dict[Line, None]] = {}
        self._standing: dict[bytes, Line] = {}
        # All numbers have as many digits: queues compare the names of waiters with equal tickets as text, and
        # would serve the tenth line before the second.
        self._count = 1_000_000_000
        # Per node the members that left while it could not be told, and their keys. Without this
        # a waiter of the past would stand first there, and keep the keys from those behind it.
        self._unheard: dict[int, dict[bytes, tuple[bytes, ...]]] = {}
        self.passing = True

    def join(self, contender: Contender) -> bool:
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

    def granted(self, contender: Contender, holding: Holding, now: float, attempt: Round) -> None:
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

    def refused(self, contender: Contender, attempt: Round) -> None:
        """A quorum refused the attempt of a contender: it stands in the queues of the nodes."""
        line = contender.line
        if line is not None and line.contender is contender:
            self._place_of(line).stand(attempt.replies)

    def unreachable(self, contender: Contender) -> None:
        """No quorum could be asked: the line leaves the queues, and asks again later."""
        line = contender.line
        if line is not None and line.contender is contender:
            self._place_of(line).back_off()

    def left_behind(self, contender: Contender) -> bool:
        """True while the first of its line cannot ask a quorum, and this process holds none of its keys."""
        line = contender.line
        first = None if line is None else line.contender
        return first is not None and first.unreachable and not self.holders(contender.keys)

    def leave(self, contender: Contender) -> None:
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

    def is_followed(self, contender: Contender) -> bool:
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

    def places(self) -> list[Place]:
        """The places of the lines that stand in the queues of the nodes."""
        return [
            line.place
            for line in self._standing.values()
            if line.place is not None and line.place.standing
        ]

    def holders(self, keys: tuple[bytes, ...]) -> list[Holding]:
        """The leases of this process that stand in the way of `keys`."""
        lines = dict.fromkeys(line for key in keys for line in self._wanting(key))
        return [line.holder for line in lines if line.holder is not None]

    def notified(self, index: int, payload: bytes) -> None:
        """Node `index` sent this process a message about one of its waiters."""
        message = message_of(payload)
        if message is None or not message.member.startswith(self._manager + b":"):
            return
        line = self._standing.get(message.member)
        if line is not None and line.place is not None and message.key in line.keys:
            line.place.notified(index, message.left)
        else:
            # The waiter is gone, or has the lock: its entry must not take the turn of another process.
            errand = leaving((message.key,), message.member, self._context.clock())
            self._context.fleet.nodes[index].ask(errand, index)

    def changed(self, index: int, keys: Iterable[bytes] | None) -> None:
        """Node `index` says that `keys` changed, or that any may have (None)."""
        if keys is None:
            # Before the looks of waiters that have come back with the same name since.
            for member, missed in self._unheard.pop(index, {}).items():
                errand = leaving(
                    missed, member, self._context.clock(), partial(self._left, missed, member)
                )
                self._context.fleet.nodes[index].ask(errand, index)
            for line in self._all():
                self._doubt(line)
                if line.place is not None:
                    line.place.reconnected(index)
            return
        for key in keys:
            for line in self._wanting(key):
                self._doubt(line, index)
                if line.place is not None:
                    line.place.changed(index)

    def doubt(self, key: bytes) -> None:
        """This process is about to delete the key by force: no grant of it is passed on."""
        for line in self._wanting(key):
            self._doubt(line)

    def contenders(self) -> list[Contender]:
        """Everybody who contends or waits."""
        return [
            who
            for line in self._all()
            for who in (line.contender, *(line.queue or ()))
            if who is not None
        ]

    def close(self) -> None:
        """Leave all queues at once: the connections are about to close."""
        for line in self._standing.values():
            if line.place is not None:
                line.place.leave()
        self._standing.clear()

    def disown(self) -> None:
        """In a forked child: wake nobody, and send nothing."""
        for line in self._standing.values():
            if line.place is not None:
                line.place.stop()

    def _new_line(self, keys: tuple[bytes, ...], *, alone: bool) -> Line:
        self._count += 1
        line = Line(keys, self._count)
        if not alone:
            self._lines[keys] = line
        if alone or len(keys) > 1:
            for key in keys:
                self._others.setdefault(key, {})[line] = None
        return line

    def _place_of(self, line: Line) -> Place:
        if line.place is None:
            context = self._context
            # A node that is away for a moment is no reason to ask by itself for as long as the line lasts.
            heard = (
                sum(node.messages or not node.ready for node in context.fleet.nodes)
                >= context.quorum
            )
            member = member_of(
                self._manager, line.number, Place.grace(context, notified=heard), notified=heard
            )

            def ask(claim: bytes, cause: WakeCause) -> None:
                if line.contender is not None:
                    line.contender.attempt(claim, cause)

            line.place = Place(
                context, line.keys, member, ask, partial(self._left, line.keys, member)
            )
            self._standing[member] = line
        return line.place

    def _left(self, keys: tuple[bytes, ...], member: bytes, index: int, reply: Reply) -> None:
        if type(reply) in (Unsent, Dropped):
            self._unheard.setdefault(index, {})[member] = keys

    def _inherit(self, line: Line, asking: bool, unreachable: bool) -> None:
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

    def _leave_place(self, line: Line) -> None:
        if line.place is not None:
            self._standing.pop(line.place.member, None)
            line.place.leave()
            line.place = None

    def _forget_idle(self, line: Line) -> None:
        if line.occupied:
            return
        if not self._others and len(self._lines) <= _MOST_IDLE:
            # A name is often locked again. The queues must tell its next waiter from the last one.
            self._count += 1
            line.number = self._count
            return
        if self._lines.get(line.keys) is line:
            del self._lines[line.keys]
        for key in line.keys if self._others else ():
            if (others := self._others.get(key)) is not None:
                others.pop(line, None)
                if not others:
                    del self._others[key]

    def _wanting(self, key: bytes) -> list[Line]:
        line = self._lines.get((key,))
        return [*(() if line is None else (line,)), *self._others.get(key, ())]

    def _all(self) -> Iterator[Line]:
        lines = dict.fromkeys(self._lines.values())
        for others in self._others.values():
            lines.update(others)
        return iter(list(lines))

    def _doubt(self, line: Line, index: int | None = None) -> None:
        # A node that has not granted yet tells of the release before. Without this a waiter that tracked the
        # key as the first of its queue could pass on nothing, and its process got one lease per run.
        holder = line.holder
        if holder is not None and (index is None or is_granted(holder.granted[index])):
            holder.covered = False
        if line.contender is not None and line.contender.asking:
            line.contender.doubt(index)
