"""Who is next: one contender per resource and process, first come first served; it never asks a node itself."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.turns import Turns
from aioredlock_ng.events import LockHandedOn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.holding import Holding

__all__ = ["Contender", "Lines"]

ROOM = 1024
"""Lines kept before the idle ones are swept out: some 0.5 MB."""


class Contender(Protocol):
    """One acquisition that waits.

    Attributes:
        keys: What it wants.
        unreachable: True while its last attempt could not ask a quorum.
    """

    keys: tuple[bytes, ...]
    unreachable: bool

    def attempt(self, *, lead_first: bool) -> None:
        """It is its turn: ask all nodes at once, or, where other processes compete, one before the others."""

    def wake(self) -> None:
        """The resource may be free now."""

    def changed(self, index: int) -> None:
        """Node `index` says that a wanted key changed."""

    def give_up(self, error: BaseException | None) -> None:
        """End it."""

    def refuse_deadlock(self, holders: Sequence[Holding]) -> None:
        """These holdings of this process stand in its way; raises `LockHeld` if it would wait for itself for ever."""


class _Line:
    """The acquisitions of one resource in this process (one contends, the others queue) and its local holder.

    Most lines are for one acquisition that never waits: only those behind it need a queue.
    """

    __slots__ = ("contender", "holder", "keys", "queue", "resting", "turns")

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        self.keys = keys
        self.queue: OrderedDict[Contender, None] | None = None
        self.holder: Holding | None = None
        self.turns = Turns()
        self.resting = False
        # Has begun to ask, and goes on by itself.
        self.contender: Contender | None = None

    @property
    def idle(self) -> bool:
        """True when nobody would miss it."""
        return self.open and not self.queue

    @property
    def open(self) -> bool:
        """True when the next one may contend."""
        return self.contender is None and self.holder is None and not self.resting


class Lines:
    """All lines of one manager."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lines: dict[tuple[bytes, ...], _Line] = {}
        self._wide: dict[tuple[bytes, ...], _Line] = {}
        self._room = ROOM

    def join(self, contender: Contender) -> None:
        """Queue up; the first in line contends at once unless this process holds the resource itself.

        Raises:
            LockHeld: See `Contender.refuse_deadlock`.
        """
        line = self._line(contender.keys)
        if line.holder is not None or self._wide:
            contender.refuse_deadlock(self.holders(contender.keys))
        if line.idle:
            line.contender = contender
            contender.attempt(lead_first=False)
        else:
            if line.queue is None:
                line.queue = OrderedDict()
            line.queue[contender] = None

    def granted(self, contender: Contender, holding: Holding, now: float) -> None:
        """`contender` got the resource, in line or past it."""
        line = self._line(contender.keys)
        line.holder = holding
        line.turns.granted(now, holding.since)
        if line.contender is contender:
            line.contender = None

    def refused(self, contender: Contender, *, woken: bool) -> None:
        """Who contends found the resource held by another process; `woken`: after a wake-up."""
        line = self._lines.get(contender.keys)
        if line is not None and line.holder is None:
            line.turns.refused(self._context.clock(), woken=woken)

    def crowded(self, contender: Contender) -> bool:
        """True while other processes are likely to ask in the same instant."""
        line = self._lines.get(contender.keys)
        return line is not None and line.turns.crowded(self._context.clock())

    def leave(self, contender: Contender) -> None:
        """`contender` gave up, wherever it stands; the next one's turn comes in the next tick."""
        line = self._lines.get(contender.keys)
        if line is None:
            return
        if line.queue and contender in line.queue:
            del line.queue[contender]
        elif line.contender is contender:
            line.contender = None
            # Not at once: a thousand waiters that fail one after the other would be a thousand calls deep.
            self._context.loop.call_soon(self._next, line, False, contender.unreachable)

    def freed(self, holding: Holding, now: float) -> None:
        """A local holding is over: hand on within this tick, or stand back for other processes."""
        keys = holding.spec.keys
        line = self._lines.get(keys)
        if line is not None and line.holder is holding:
            line.holder = None
            if pause := line.turns.freed(now):
                line.resting = True
                self._context.loop.call_later(pause, self._rested, line)
            elif line.contender is not None:
                # It asked while somebody else of this process went past the queue.
                line.contender.wake()
            elif line.queue:
                self._context.counters.handoffs += 1
                self._next(line)
                if (tell := self._context.tell) is not None:
                    tell(LockHandedOn(holding.spec.resource))
        if self._wide:
            for other in list(self._touching(keys)):
                if other is not line and other.holder is None and other.contender is not None:
                    other.contender.wake()

    def undone(self, contender: Contender) -> None:
        """`contender` takes back what some nodes had granted it; they tell nobody of that in its own process (NOLOOP)."""
        for line in list(self._touching(contender.keys)):
            other = line.contender
            if other is not None and other is not contender and line.holder is None:
                other.wake()

    def length(self, keys: tuple[bytes, ...]) -> int:
        """How many of this process want exactly these keys and do not have them."""
        line = self._lines.get(keys)
        return 0 if line is None else (line.contender is not None) + len(line.queue or ())

    def unreachable(self, keys: tuple[bytes, ...]) -> bool:
        """True while whoever contends for exactly these keys cannot ask a quorum."""
        line = self._lines.get(keys)
        return line is not None and line.contender is not None and line.contender.unreachable

    def holders(self, keys: tuple[bytes, ...]) -> list[Holding]:
        """Holdings of this process that stand in the way of `keys`."""
        return [line.holder for line in self._touching(keys) if line.holder is not None]

    def changed(self, index: int, keys: Iterable[bytes] | None) -> None:
        """Node `index` says that `keys` changed, or that any may have (None)."""
        for line in list(self._lines.values() if keys is None else self._touching(keys)):
            if line.contender is not None:
                line.contender.changed(index)

    def contenders(self) -> list[Contender]:
        """Everybody who contends or waits."""
        lines = self._lines.values()
        return [contender for line in lines for contender in (line.contender, *(line.queue or ())) if contender is not None]

    def _line(self, keys: tuple[bytes, ...]) -> _Line:
        line = self._lines.get(keys)
        if line is None:
            if len(self._lines) >= self._room:
                self._sweep()
            line = self._lines[keys] = _Line(keys)
            if len(keys) > 1:
                self._wide[keys] = line
        return line

    def _sweep(self) -> None:
        """Idle lines are kept, for they know whose turn it was, until there are too many."""
        for line in [line for line in self._lines.values() if line.idle]:
            del self._lines[line.keys]
            self._wide.pop(line.keys, None)
        self._room = max(ROOM, 2 * len(self._lines))

    def _rested(self, line: _Line) -> None:
        line.resting = False
        if line.contender is not None:
            line.contender.wake()
        self._next(line, lead_first=True)

    def _next(self, line: _Line, lead_first: bool = False, unreachable: bool = False) -> None:
        if line.open and line.queue:
            line.contender, _ = line.queue.popitem(last=False)
            # Who waited for a holder has not waited for the nodes, though its own first attempt is still to be answered.
            line.contender.unreachable = unreachable
            line.contender.attempt(lead_first=lead_first)

    def _touching(self, keys: Iterable[bytes]) -> Iterator[_Line]:
        wanted = set(keys)
        for key in wanted:
            line = self._lines.get((key,))
            if line is not None:
                yield line
        for keys_of, line in self._wide.items():
            if not wanted.isdisjoint(keys_of):
                yield line
