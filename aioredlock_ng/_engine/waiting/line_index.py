"""Find the waiting lines of one manager by their keys, make new lines, and drop idle ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._engine.waiting.line import Line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.spec import LineKey, LockSpec
    from aioredlock_ng._engine.waiting.line import Contender

__all__ = ["LineIndex"]

_MOST_IDLE = 4096
"""Up to this size of the index, lines without tasks are kept. The size is the number of entries in
`_lines` and `_others`. An index of this size takes about 1 MB."""


class LineIndex:
    """All waiting lines of one manager, by their keys."""

    def __init__(self) -> None:
        self._lines: dict[LineKey, Line[LeaseRecord]] = {}
        # Maps each key to the lines that are not found in `_lines` by this key.
        self._others: dict[bytes, dict[Line[LeaseRecord], None]] = {}

    def holders(self, keys: tuple[bytes, ...]) -> list[LeaseRecord]:
        """Return the leases of this process for any of the keys."""
        lines: dict[Line[LeaseRecord], None] = {}
        # The loop over the keys must be cheap. A semaphore may have a thousand keys, and each call
        # that waits runs this loop.
        for key in keys:
            if (line := self._lines.get((key,))) is not None:
                lines[line] = None
            if (others := self._others.get(key)) is not None:
                lines.update(others)
        held = [lease for line in lines for lease in line.holders]
        if not held:
            return held
        wanted = set(keys)
        return [lease for lease in held if not wanted.isdisjoint(lease.spec.keys)]

    def excluding(self, keys: tuple[bytes, ...], *, shared: bool) -> list[LeaseRecord]:
        """Return the leases of this process that keep a task from any of the keys.

        If `shared` is True, the task wants to read. No reader waits for readers.
        """
        held = self.holders(keys)
        if shared:
            return [lease for lease in held if not lease.spec.kind.shared]
        return held

    def contenders(self) -> list[Contender[LeaseRecord]]:
        """Return all tasks that contend or wait."""
        return [
            task
            for line in self._all()
            for task in (line.contender, *(line.queue or ()))
            if task is not None
        ]

    def _new_line(self, contender: Contender[LeaseRecord], *, alone: bool) -> Line[LeaseRecord]:
        return self._add_line(contender.line_key, contender.keys, contender.spec, alone=alone)

    def _add_line(
        self, key: LineKey, keys: tuple[bytes, ...], spec: LockSpec, *, alone: bool = False
    ) -> Line[LeaseRecord]:
        line: Line[LeaseRecord] = Line(key, keys, spec.slots, shared=spec.kind.shared)
        if not alone:
            self._lines[key] = line
        # `_lines` finds the line of a lock with one key. `_others` finds the other lines of a key:
        # the lines of semaphores, of readers, of acquisitions with several names, and of `fair`
        # acquisitions.
        if alone or len(keys) > 1 or key != keys:
            for each in keys:
                self._others.setdefault(each, {})[line] = None
        return line

    def _forget_idle(self, line: Line[LeaseRecord]) -> None:
        if line.occupied:
            return
        # Lines of locks with several names, and of `fair` waiters, are not kept.
        often = line.slots is not None or len(line.keys) == 1
        often = often and self._lines.get(line.key) is line
        if often and len(self._lines) + len(self._others) <= _MOST_IDLE:
            # The line is kept, because a name is often locked again.
            return
        if self._lines.get(line.key) is line:
            del self._lines[line.key]
        for key in line.keys if self._others else ():
            if (others := self._others.get(key)) is not None:
                others.pop(line, None)
                if not others:
                    del self._others[key]

    def _wanting(self, key: bytes) -> list[Line[LeaseRecord]]:
        line = self._lines.get((key,))
        return [*(() if line is None else (line,)), *self._others.get(key, ())]

    def _all(self) -> Iterator[Line[LeaseRecord]]:
        lines = dict.fromkeys(self._lines.values())
        for others in self._others.values():
            lines.update(others)
        return iter(list(lines))
