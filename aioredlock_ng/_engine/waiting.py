"""Who is next: one contender per resource and process, first come first served; it never asks a node itself."""

from __future__ import annotations

from collections import OrderedDict
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.keys import PRECEDENCE_KEYS, TURN_KEYS
from aioredlock_ng._core.turns import STAND_BACK
from aioredlock_ng._engine.hints import end_turn
from aioredlock_ng._engine.register import KEPT_FREE, Register
from aioredlock_ng.events import LockHandedOn

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator, Sequence

    from aioredlock_ng._core.turns import Turns
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.holding import Holding
    from aioredlock_ng._engine.register import Line

__all__ = ["PASSED_OVER", "Contender", "Lines"]

PASSED_OVER = 3
"""Times that somebody is passed over, for a name that its process holds, before those that are free are kept for it."""

LONGEST_KEPT = 2.0
"""Seconds for which they are at most: `KEPT_FREE`, and twice as long each time that it was in vain. Bodies may last so."""

KEPT_SHARE = 0.2
"""Of the time, for which names are kept in vain at most: nobody can use them meanwhile."""


class Contender(Protocol):
    """One acquisition that waits.

    Attributes:
        keys: What it wants.
        asking: True while an attempt of it is under way.
        unreachable: True while its last attempt could not ask a quorum.
        held: Of those, what its last attempt was refused for; all while it asks.
    """

    keys: tuple[bytes, ...]
    held: tuple[bytes, ...]
    unreachable: bool

    def attempt(self, *, lead_first: bool) -> None:
        """It is its turn: ask all nodes at once, or, where other processes compete, one before the others."""

    def heir(self, holding: Holding, now: float) -> Holding | None:
        """What it would have by the grant of this holding, which is about to be released; None: it has to ask."""

    def take(self, holding: Holding) -> None:
        """It has this from now on."""

    def wake(self, *, lead_first: bool) -> None:
        """This process gave the resource up, or one that shares a name with it: its turn again, at once."""

    @property
    def asking(self) -> bool:
        """See above."""

    def changed(self, index: int, keys: Iterable[bytes] | None) -> None:
        """Node `index` says that these keys changed, of which it wants some; None: any may have."""

    def turn_over(self) -> None:
        """Another process says that it no longer hands the wanted key on within itself."""

    def freed(self, indexes: Sequence[int]) -> None:
        """On these nodes a wanted key is being given back by this process."""

    def give_up(self, error: BaseException | None) -> None:
        """End it."""

    def doubt(self) -> None:
        """Pass nothing on of what its attempt under way may be granted: its keys may be deleted before that is known."""

    def refuse_deadlock(self, holders: Sequence[Holding]) -> None:
        """These holdings of this process stand in its way; raises `LockHeld` if it would wait for itself for ever."""


class Lines:
    """All lines of one manager.

    Args:
        context: The engine's surroundings.
        own_id: What this process is called where processes compete.

    Attributes:
        arrivals: How many have come so far.
        passing: False where each lease must have a token of its own: then nothing is passed on.
    """

    def __init__(self, context: Context, own_id: bytes) -> None:
        self._context = context
        self._own_id = own_id
        self._register = register = Register()
        self._lines = register.lines
        # For whom names are kept that are free: one at a time, for two might wait for each other.
        self._keeping: tuple[Line, asyncio.TimerHandle] | None = None
        self._keep_again_at = float("-inf")
        self.arrivals = 0
        self.passing = True

    def join(self, contender: Contender) -> None:
        """Queue up; the first in line contends at once unless this process holds or wants a name of it already.

        Raises:
            LockHeld: See `Contender.refuse_deadlock`.
        """
        register = self._register
        line = register.line(contender.keys)
        if line.holder is not None or register.sets:
            contender.refuse_deadlock(self.holders(contender.keys))
        if register.sets:
            # Who came first may be about to ask in the next tick, for somebody has just gone.
            self._next_of(contender.keys)
        self.arrivals += 1
        if line.idle and self._is_free(line):
            self._contend(line, contender, self.arrivals)
            contender.attempt(lead_first=False)
        else:
            if line.queue is None:
                line.queue = OrderedDict()
            line.queue[contender] = self.arrivals
            register.moved(line)

    def granted(self, contender: Contender, holding: Holding, now: float) -> None:
        """`contender` got the resource, in line or past it."""
        register = self._register
        line = register.line(contender.keys)
        line.holder = holding
        if register.sets:
            self._go_on_from(line)
        line.turns.granted(now, holding.since)
        if line.contender is contender:
            line.contender = None
        if len(line.keys) > 1:
            line.passed_over, line.kept_for = 0, KEPT_FREE
            self._keep_no_more(line)
            register.moved(line)
            register.claim(line, line.keys)

    def asks(self, contender: Contender) -> None:
        """Who contends for several names asks the nodes now, for each of them."""
        line = self._lines.get(contender.keys)
        if line is not None and line.contender is contender:
            self._register.claim(line, line.keys)

    def refused(self, contender: Contender, held: tuple[bytes, ...], asked: float, *, woken: bool, contested: bool) -> None:
        """Who contends found `held` in the hands of another process, by what it asked at that instant.

        `woken`: after a wake-up; `contested`: rivals of the same moment split the votes.

        For the other names it wants, those behind it need not wait: it may sleep for long. Where rivals only split the votes it
        will not, and those behind would split them more.
        """
        line = self._lines.get(contender.keys)
        if line is None:
            return
        # A line of this process that shares names is no rival process.
        if line.holder is None and not (self._register.sets and self.holders(contender.keys)):
            line.turns.refused(self._context.clock(), asked, woken=woken)
            for key in contender.keys if self._register.sets else ():
                self._register.last.pop(key, None)
        if self._keeping is not None and (kept := self._keeping[0]) is not line and any(key in kept.keys for key in held):
            # What it lacks is not to be had here, as it seemed.
            self._keep_no_more(kept)
            self._context.loop.call_soon(self._give_back, kept)
        if line.contender is not contender or line.holder is not None:
            return
        if len(held) == len(line.keys):
            self._register.claim(line, held)
        elif not (self._keep(line, line.keys) if contested and not held else self._pass_over(line, held)):
            self._register.claim(line, held)
            # Not at once: what asks now may be refused in this very call.
            self._context.loop.call_soon(self._leave_over, line, [key for key in line.keys if key not in held])

    def refused_otherwise(self, contender: Contender, held: tuple[bytes, ...]) -> None:
        """News changed which names the contender was refused for: those behind it may ask for the others."""
        line = self._lines.get(contender.keys)
        if line is None or line.contender is not contender or line.holder is not None or self._keeps_for(line):
            return
        over = [key for key in line.claims if key not in held]
        if over:
            self._register.claim(line, held)
            self._context.loop.call_soon(self._leave_over, line, over)

    def lets_others_ask(self, contender: Contender) -> None:
        """Who contends cannot succeed for now, and those behind it might."""
        line = self._lines.get(contender.keys)
        if line is not None and line.contender is contender and line.holder is None:
            self._register.claim(line, ())
            self._context.loop.call_soon(self._next_of, line.keys)

    def turns(self, contender: Contender) -> Turns:
        """Those of this process, of what it wants."""
        return self._register.line(contender.keys).turns

    def precedence(self, contender: Contender) -> tuple[bytes | int, ...]:
        """What it tells the nodes where processes compete: see acquire_guarded.lua. Nothing of several names."""
        if len(contender.keys) > 1 or not self._context.options.own_keys:
            return ()
        return PRECEDENCE_KEYS + contender.keys[0], self._own_id, *self.turns(contender).precedence()

    def leave(self, contender: Contender) -> None:
        """`contender` gave up, wherever it stands; the next one's turn comes in the next tick."""
        line = self._lines.get(contender.keys)
        if line is None:
            return
        if line.queue and contender in line.queue:
            del line.queue[contender]
            self._register.moved(line)
            if not line.queue and self._keeps_for(line):
                self._keep_no_more(line)
                self._context.loop.call_soon(self._give_back, line)
        elif line.contender is contender:
            line.contender = None
            self._keep_no_more(line)
            self._claim_for_next(line)
            # Not at once: a thousand waiters that fail one after the other would be a thousand calls deep.
            self._context.loop.call_soon(self._given_up, line, contender.unreachable)

    def heir(self, holding: Holding, now: float) -> Holding | None:
        """A local holding is about to be released: what the next in line may have of its grant. None: the nodes must be asked.

        They need not where it stood there when that was asked for: a quorum granted it for the whole line, as it were.
        """
        line = self._lines.get(holding.spec.keys)
        if line is None or line.holder is not holding or line.contender is not None or line.resting or not line.queue:
            return None
        if line.since > holding.covered or self._register.shared(line.keys[0]):
            return None
        if not line.turns.goes_on(now, holding.started):
            return None
        return next(iter(line.queue)).heir(holding, now)

    def is_followed(self, contender: Contender) -> bool:
        """True when what it asks for now may be passed on to others in its line."""
        line = self._lines.get(contender.keys)
        return line is not None and bool(line.queue) and line.contender is contender and len(line.keys) == 1 and self.passing

    def pass_on(self, heir: Holding) -> None:
        """The next in line has this."""
        line = self._lines[heir.spec.keys]
        assert line.queue
        contender, _ = line.queue.popitem(last=False)
        line.holder, line.handed_on = heir, line.keys
        self._context.counters.handoffs += 1
        self._context.counters.passed_on += 1
        contender.take(heir)

    def freed(self, holding: Holding, now: float) -> None:
        """A local holding is over: hand on within this tick, or stand back for other processes."""
        keys, sets = holding.spec.keys, self._register.sets
        line = self._lines.get(keys)
        if line is not None and line.holder is holding:
            line.holder = None
            if line.resting:
                # Somebody went past the line in the others' turn, which is not over.
                return
            if sets:
                self._register.last.update(dict.fromkeys(keys, line.turns))
            if pause := line.turns.freed(now):
                # Nobody else of this process goes on in between either: it is the others' turn.
                line.resting = True
                self._context.loop.call_later(pause, self._rested, line)
                self._end_turn(line, keys)
                return
            if sets:
                self._claim_for_next(line)
                self._go_on(holding, line)
            elif line.contender is not None:
                # It asked while somebody else of this process went past the queue.
                line.contender.wake(lead_first=False)
            elif line.queue:
                self._hand_on(line, holding)
            if line.idle and (awaited := self._awaited(line, now)):
                # This is the end of its turn unless its next one comes at once.
                self._context.loop.call_later(0.0 if line.handed_on else STAND_BACK, self._left, line, now, awaited)
        elif sets:
            self._go_on(holding, None)

    def undone(self, contender: Contender, indexes: Sequence[int]) -> None:
        """`contender` takes back what these nodes may have granted; they tell nobody of that in its own process (NOLOOP)."""
        for line in self._register.busy(contender.keys):
            other = line.contender
            if other is not None and other is not contender and line.holder is None:
                other.freed(indexes)

    def length(self, keys: tuple[bytes, ...]) -> int:
        """How many of this process want exactly these keys and do not have them."""
        line = self._lines.get(keys)
        return 0 if line is None else (line.contender is not None) + len(line.queue or ())

    def unreachable(self, contender: Contender) -> bool:
        """True while whoever stands before it in this process cannot ask a quorum, and nobody of it has one of its names."""
        keys = contender.keys
        queue = self._register.line(keys).queue
        arrived = 0 if queue is None else queue.get(contender, 0)
        # Who came later has perhaps not been answered yet.
        before = [line.contender for line in self._register.busy(keys) if line.contender is not None and line.arrived < arrived]
        return bool(before) and all(other.unreachable for other in before) and not self.holders(keys)

    def holders(self, keys: tuple[bytes, ...]) -> list[Holding]:
        """Holdings of this process that stand in the way of `keys`."""
        return [line.holder for line in self._register.busy(keys) if line.holder is not None]

    def changed(self, index: int, keys: Iterable[bytes] | None) -> None:
        """Node `index` says that `keys` changed, or that any may have (None)."""
        for line in self._register.busy([key[len(TURN_KEYS) :] for key in keys or () if key.startswith(TURN_KEYS)]):
            if line.contender is not None:
                line.contender.turn_over()
        for line in list(self._lines.values()) if keys is None else self._register.busy(keys):
            self._doubt(line)
            if line.contender is not None:
                line.contender.changed(index, keys)

    def doubt(self, key: bytes) -> None:
        """This process is about to delete the key by force: neither its lease nor a grant under way is passed on."""
        for line in self._register.busy((key,)):
            self._doubt(line)
            if line.contender is not None:
                line.contender.doubt()

    def _doubt(self, line: Line) -> None:
        if line.holder is not None:
            line.holder.covered = 0

    def contenders(self) -> list[Contender]:
        """Everybody who contends or waits."""
        lines = self._lines.values()
        return [contender for line in lines for contender in (line.contender, *(line.queue or ())) if contender is not None]

    def close(self) -> None:
        """This process goes on with nothing: those who await the end of its turns need not wait for more."""
        now = self._context.clock()
        for line in self._lines.values():
            if awaited := self._awaited(line, now):
                self._end_turn(line, awaited)

    def _given_up(self, line: Line, unreachable: bool) -> None:
        if self._register.sets:
            self._next_of(line.keys, unreachable)
        else:
            self._next(line, False, unreachable)
        # Who gave up may have been handed it, or taken it at once, and nobody follows.
        if line.turns.freed_at > float("-inf") and (awaited := self._awaited(line, self._context.clock())):
            self._left(line, line.turns.freed_at, awaited)

    def _awaited(self, line: Line, now: float) -> tuple[bytes, ...]:
        """The keys of which other processes may await the end of this one's turn."""
        return line.keys if line.turns.crowded(now) else line.handed_on

    def _left(self, line: Line, freed_at: float, keys: Sequence[bytes]) -> None:
        """Nobody follows in it, it seems; but others of this process may go on with some of its keys."""
        if line.idle and line.turns.freed_at == freed_at:
            self._end_turn(line, [key for key in keys if not any(self._register.in_the_way((key,), line))])
            line.handed_on = ()

    def _leave_over(self, line: Line, keys: Sequence[bytes]) -> None:
        """Its contender waits for other ones."""
        self._next_of(keys)
        over = [key for key in line.handed_on if key in keys and not any(self._register.in_the_way((key,), line))]
        if over:
            self._end_turn(line, over)

    def _end_turn(self, line: Line, keys: Sequence[bytes]) -> None:
        line.handed_on = tuple([key for key in line.handed_on if key not in keys])
        if self._context.options.own_keys:
            end_turn(self._context, keys)

    def _hand_on(self, line: Line, holding: Holding) -> None:
        line.handed_on = line.keys
        self._context.counters.handoffs += 1
        self._next(line)
        self._context.fleet.hurry()
        if (tell := self._context.tell) is not None:
            tell(LockHandedOn(holding.spec.resource))

    def _rested(self, line: Line) -> None:
        line.resting = False
        self._claim_for_next(line)
        for other in self._able(line.keys):
            if other.contender is not None:
                other.contender.wake(lead_first=True)
            else:
                self._next(other, lead_first=True)

    def _go_on(self, holding: Holding, freed: Line | None) -> None:
        """Who wants a name of it and can ask does, behind the release: who came first is not overtaken by its own process."""
        keys = holding.spec.keys
        for place, line in enumerate(self._able(keys)):
            if freed is not None and line is not freed:
                line.turns.follow(freed.turns)
            line.handed_on = tuple([key for key in line.keys if key in keys or key in line.handed_on])
            if line.contender is not None:
                line.contender.wake(lead_first=False)
            elif line is freed and place == 0:
                self._hand_on(line, holding)
            else:
                self._next(line)

    def _able(self, keys: tuple[bytes, ...]) -> Iterator[Line]:
        """Of those who want one of these names, which this process holds no more, who can ask now; the oldest wish first."""
        awaiting = [(line.arrived, line) for line in self._register.busy(keys) if line.holder is None and line.awaits(keys)]
        for line in self._by_arrival(keys, awaiting):
            if line.contender is not None:
                if line.awaits(keys):
                    yield line
            elif self._is_free(line):
                yield line
            elif len(line.keys) > 1:
                self._pass_over(line, line.keys)

    def _pass_over(self, line: Line, missing: Sequence[bytes]) -> bool:
        """It cannot have some of these now. True when the others are kept for it: after a while, where its process holds those.

        Else it would never find all of them free at once beside queues for each.
        """
        line.passed_over += 1
        others = list(self._register.in_the_way(missing, line))
        if not self._keeps_for(line) and (
            self._keeping is not None
            or line.passed_over <= PASSED_OVER
            or self._context.clock() < self._keep_again_at
            or not others
            # Who sleeps waits for another process.
            or not all(other.holder or (other.contender and other.contender.asking) for other in others)
        ):
            return False
        held = {key for other in others for key in other.keys}
        return self._keep(line, tuple([key for key in line.keys if key not in held]))

    def _keep(self, line: Line, keys: tuple[bytes, ...]) -> bool:
        """Keep these of its names for it, for a while; False where that is done for another."""
        if self._keeping is None:
            self._keeping = line, self._context.loop.call_later(line.kept_for, self._kept_in_vain, line)
        elif not self._keeps_for(line):
            return False
        over = [key for key in line.claims if key not in keys]
        self._register.claim(line, keys)
        if over:
            self._context.loop.call_soon(self._next_of, over)
        return True

    def _keeps_for(self, line: Line) -> bool:
        return self._keeping is not None and self._keeping[0] is line

    def _keep_no_more(self, line: Line) -> None:
        """It asks, or is gone, or was waited for long enough."""
        if self._keeping is not None and self._keeps_for(line):
            self._keeping[1].cancel()
            self._keeping = None

    def _kept_in_vain(self, line: Line) -> None:
        self._keep_no_more(line)
        self._keep_again_at = self._context.clock() + line.kept_for / KEPT_SHARE - line.kept_for
        line.kept_for = min(2 * line.kept_for, LONGEST_KEPT)
        self._give_back(line)

    def _give_back(self, line: Line) -> None:
        """What was kept for it, for long enough, or until the last of it has gone."""
        line.passed_over = 0
        if line.holder is None and not line.resting and not (line.contender and line.contender.asking):
            held = () if line.contender is None else line.contender.held
            self._register.claim(line, held if len(held) < len(line.keys) else ())
            self._next_of(line.keys)

    def _go_on_from(self, line: Line) -> None:
        """A run goes on though each of its holds had other names beside the shared one."""
        known = self._register.last
        last = max((known[key] for key in line.keys if key in known), key=attrgetter("freed_at"), default=None)
        if last is not None and last.freed_at > line.turns.freed_at:
            line.turns.follow(last)

    def _by_arrival(self, keys: Sequence[bytes], others: Sequence[tuple[int, Line]] = ()) -> Iterator[Line]:
        """The open lines whose queues want any of these names, while it is left to them, and others; the oldest wish first."""
        after = 0
        while firsts := [first for first in (*self._register.first_queues(keys, after), *others) if first[0] > after]:
            after, line = min(firsts)
            yield line

    def _next_of(self, keys: Sequence[bytes], unreachable: bool = False) -> None:
        """Somebody no longer stands in the way of these names: whoever can ask now does, the oldest wish first."""
        for line in self._by_arrival(keys):
            self._next(line, False, unreachable)

    def _is_free(self, line: Line) -> bool:
        """True when nobody else of this process has a name of this line, asks for it, or leaves it to others after a run.

        Nor waits for it to be given back by another process: who comes later would only be refused as well.
        """
        register = self._register
        return not register.sets or not any(register.in_the_way(line.keys, line))

    def _claim_for_next(self, line: Line) -> None:
        """Its holder or contender is gone, or its rest is over; where somebody went past the queue there is still another."""
        self._register.moved(line)
        self._register.claim(line, () if line.open else line.keys)

    def _contend(self, line: Line, contender: Contender, arrived: int) -> None:
        """From now on it is this one's turn to ask."""
        line.contender, line.arrived = contender, arrived
        self._register.moved(line)

    def _next(self, line: Line, lead_first: bool = False, unreachable: bool = False) -> None:
        if line.open and line.queue and self._is_free(line):
            contender, arrived = line.queue.popitem(last=False)
            self._contend(line, contender, arrived)
            self._keep_no_more(line)
            # Who waited for a holder has not waited for the nodes, though its own first attempt is still to be answered.
            contender.unreachable = unreachable
            contender.attempt(lead_first=lead_first)
