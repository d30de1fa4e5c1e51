"""The lines of one manager by their names: who wants a name, has it or asks for it. It wakes nobody, and decides nothing.

Whatever is looked up costs what it finds, not what there is: a thousand sets of names that share one are a thousand lines.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final

from aioredlock_ng._core.turns import Turns

if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Iterable, Iterator

    from aioredlock_ng._engine.holding import Holding
    from aioredlock_ng._engine.waiting import Contender

__all__ = ["KEPT_FREE", "ROOM", "Line", "Register"]

ROOM = 1024
"""Keys of the lines that are kept before the idle ones are swept out: some 0.5 MB."""

KEPT_FREE = 0.25
"""Seconds for which free names are kept at first, for who wants others with them that its process holds: who holds those may
want one of them inside its body, and would wait for who waits for it."""

_IDLE: Final = 0
_BUSY: Final = -1


class Line:
    """The acquisitions of one resource in this process (one contends, the others queue) and its local holder.

    Most lines are for one acquisition that never waits: only those behind it need a queue.
    """

    __slots__ = (
        "arrived",
        "claims",
        "contender",
        "handed_on",
        "holder",
        "kept_for",
        "keys",
        "passed_over",
        "place",
        "queue",
        "resting",
        "turns",
    )

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        self.keys = keys
        # With the number of each one's arrival.
        self.queue: OrderedDict[Contender, int] | None = None
        self.holder: Holding | None = None
        self.turns = Turns()
        self.resting = False
        # Those of its keys that it was handed within this process, since others were last told that its turn is over.
        self.handed_on: tuple[bytes, ...] = ()
        # Has begun to ask, and goes on by itself; and the number of its arrival.
        self.contender: Contender | None = None
        self.arrived = 0
        # Of several keys: those that nobody else of this process is to ask for now.
        self.claims: tuple[bytes, ...] = ()
        # Since it last had them; and for how long names would be kept for it now.
        self.passed_over = 0
        self.kept_for = KEPT_FREE
        # Of several keys, where the register has it: `_BUSY`, `_IDLE`, or the number of the first in its queue.
        self.place = _IDLE

    @property
    def idle(self) -> bool:
        """True when nobody would miss it."""
        return self.open and not self.queue

    @property
    def open(self) -> bool:
        """True when the next one may contend."""
        return self.contender is None and self.holder is None and not self.resting

    @property
    def since(self) -> int:
        """When the first in its queue came; 0: there is none."""
        return next(iter(self.queue.values())) if self.queue else 0

    def awaits(self, keys: Iterable[bytes]) -> bool:
        """True when one of these is what the contender asks for, or was refused."""
        return self.contender is not None and any(key in self.contender.held for key in keys)


class Register:
    """All lines of one manager.

    Attributes:
        lines: By their keys.
        sets: How many of them are of several.
        last: By a key that several lines may want: the turns of the one that was freed last.
    """

    def __init__(self) -> None:
        self.lines: dict[tuple[bytes, ...], Line] = {}
        self.sets = 0
        self.last: dict[bytes, Turns] = {}
        # By each of their keys, lines of several: those that are not open; what they claim; and those that are open and have a
        # queue, by who came first.
        self._busy: dict[bytes, dict[Line, None]] = {}
        self._claims: dict[bytes, dict[Line, None]] = {}
        self._queues: dict[bytes, list[tuple[int, Line]]] = {}
        self._size = 0
        self._room = ROOM

    def line(self, keys: tuple[bytes, ...]) -> Line:
        """That of these keys. Idle ones are kept, for they know whose turn it was, until there are too many."""
        line = self.lines.get(keys)
        if line is None:
            if self._size >= self._room:
                self._sweep()
            line = self.lines[keys] = Line(keys)
            self._size += len(keys)
            self.sets += len(keys) > 1
        return line

    def moved(self, line: Line) -> None:
        """It has become open, or is no longer, or its queue begins with another."""
        if len(line.keys) == 1:
            return
        before, line.place = line.place, line.since if line.open else _BUSY
        if (place := line.place) == before:
            return
        if before == _BUSY:
            _remove(self._busy, line.keys, line)
        if place == _BUSY:
            _add(self._busy, line.keys, line)
        for key in line.keys:
            queues = self._queues.setdefault(key, [])
            if before > _IDLE:
                del queues[bisect_left(queues, (before,))]
            if place > _IDLE:
                insort(queues, (place, line))
            if not queues:
                del self._queues[key]

    def claim(self, line: Line, keys: tuple[bytes, ...]) -> None:
        """From now on these names of a line of several, and no others, are kept from those behind it."""
        if len(line.keys) == 1 or line.claims == keys:
            return
        _remove(self._claims, line.claims, line)
        _add(self._claims, keys, line)
        line.claims = keys

    def busy(self, keys: Iterable[bytes]) -> list[Line]:
        """The lines of any of these keys that are not open, each once."""
        lines: dict[Line, None] = {}
        for key in keys:
            single = self.lines.get((key,))
            if single is not None and not single.open:
                lines[single] = None
            if self._busy:
                lines.update(self._busy.get(key, ()))
        return list(lines)

    def shared(self, key: bytes) -> bool:
        """True while somebody wants or has several names, and this is one of them."""
        return key in self._queues or key in self._busy

    def in_the_way(self, keys: Iterable[bytes], line: Line | None = None) -> Iterator[Line]:
        """The lines that keep these names from `line`, or from anybody."""
        for key in keys:
            single = self.lines.get((key,))
            if single is not None and single is not line and not single.open:
                yield single
            for other in self._claims.get(key, ()):
                if other is not line:
                    yield other

    def first_queues(self, keys: Iterable[bytes], after: int) -> Iterator[tuple[int, Line]]:
        """For each of these keys that no line has or asks for: the open one whose queue began first after that arrival."""
        for key in keys:
            if any(not other.open for other in self.in_the_way((key,))):
                continue
            single = self.lines.get((key,))
            if single is not None and single.since > after:
                yield single.since, single
            queues = self._queues.get(key, [])
            at = bisect_left(queues, (after + 1,))
            if at < len(queues):
                yield queues[at]

    def _sweep(self) -> None:
        self.last.clear()
        for line in [line for line in self.lines.values() if line.idle]:
            del self.lines[line.keys]
            self._size -= len(line.keys)
            self.sets -= len(line.keys) > 1
        self._room = max(ROOM, 2 * self._size)


def _add(lines: dict[bytes, dict[Line, None]], keys: Iterable[bytes], line: Line) -> None:
    for key in keys:
        lines.setdefault(key, {})[line] = None


def _remove(lines: dict[bytes, dict[Line, None]], keys: Iterable[bytes], line: Line) -> None:
    for key in keys:
        del lines[key][line]
        if not lines[key]:
            del lines[key]
