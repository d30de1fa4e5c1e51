"""Finds the waiting lines of one manager by their keys, makes new lines and drops idle ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._engine.waiting.line import Line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._engine.spec import LineKey
    from aioredlock_ng._engine.waiting.line import Contender

__all__ = ["LineIndex"]

_MOST_IDLE = 4096
"""Largest number of lines, and of keys of sets and semaphores, that are kept. Above it a line
without tasks is dropped. That many lines take about 1 MB."""


class LineIndex:
    """All waiting lines of one manager, by their keys."""

    def __init__(self) -> None:
        self._lines: dict[LineKey, Line[Holding]] = {}
        # The lines of several keys, of semaphores and of `fair` waiters, by each of their keys.
        self._others: dict[bytes, dict[Line[Holding], None]] = {}
        # All numbers have as many digits. Queues compare members with equal tickets as text, and
        # would serve line 10 before line 2.
        self._count = 1_000_000_000

    def holders(self, keys: tuple[bytes, ...]) -> list[Holding]:
        """Return the leases that this process has of any of the keys."""
        lines: dict[Line[Holding], None] = {}
        # A semaphore may have a thousand keys, and this runs for each call that waits.
        for key in keys:
            if (line := self._lines.get((key,))) is not None:
                lines[line] = None
            if (others := self._others.get(key)) is not None:
                lines.update(others)
        held = [holding for line in lines for holding in line.holders]
        if not held:
            return held
        wanted = set(keys)
        return [holding for holding in held if not wanted.isdisjoint(holding.spec.keys)]

    def contenders(self) -> list[Contender[Holding]]:
        """Return all tasks that contend or wait."""
        return [
            task
            for line in self._all()
            for task in (line.contender, *(line.queue or ()))
            if task is not None
        ]

    def _new_line(self, contender: Contender[Holding], *, alone: bool) -> Line[Holding]:
        self._count += 1
        keys, key = contender.keys, contender.line_key
        line: Line[Holding] = Line(key, keys, self._count, contender.spec.slots)
        if not alone:
            self._lines[key] = line
        # Only the line of a lock with one key is found by that key alone.
        if alone or len(keys) > 1 or key != keys:
            for each in keys:
                self._others.setdefault(each, {})[line] = None
        return line

    def _forget_idle(self, line: Line[Holding]) -> None:
        if line.occupied:
            return
        # Lines of sets of names and of `fair` waiters are not kept.
        often = line.slots is not None or len(line.keys) == 1
        often = often and self._lines.get(line.key) is line
        if often and len(self._lines) + len(self._others) <= _MOST_IDLE:
            # The line is kept, because a name is often locked again. It gets a new number, so that
            # a late message to its last waiter does not reach the next waiter.
            self._count += 1
            line.number = self._count
            return
        if self._lines.get(line.key) is line:
            del self._lines[line.key]
        for key in line.keys if self._others else ():
            if (others := self._others.get(key)) is not None:
                others.pop(line, None)
                if not others:
                    del self._others[key]

    def _wanting(self, key: bytes) -> list[Line[Holding]]:
        line = self._lines.get((key,))
        return [*(() if line is None else (line,)), *self._others.get(key, ())]

    def _all(self) -> Iterator[Line[Holding]]:
        lines = dict.fromkeys(self._lines.values())
        for others in self._others.values():
            lines.update(others)
        return iter(list(lines))
