"""Pass a grant on within the process: from a lease that ends to the next task in its line.

A grant serves its waiting line for a bounded time, the run. During a run, each lease begins when
the previous lease ends, without a request to the nodes. After the run, the nodes decide which
process is next. The technique is lock cohorting, published by Dice, Marathe and Shavit in 2012.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from aioredlock_ng._engine.waiting.reader_lines import ReaderLines

if TYPE_CHECKING:
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.waiting.line import Contender, Line

__all__ = ["RUN", "RUN_TRIPS", "PassingOn", "length_of_run"]

RUN = 0.02
"""Duration of a run in seconds, if the nodes are near.

The change to another process costs one or two round trips. Over loopback, these round trips take a
tenth of this duration."""

RUN_TRIPS = 10
"""Duration of a run in round trips, if this duration is longer than `RUN`.

If the nodes are far away, the change to another process takes longer, so a run is longer, too."""


def length_of_run(trip: float, slots: int = 1) -> float:
    """Return the longest duration of a run in seconds.

    A run also ends when the grant may not be passed on any more (see `covers` in validity.py). A
    semaphore with n slots has n runs at the same time. If these runs were as short as the run of a
    lock, the nodes would get n times as many requests. If they were n times as long, other
    processes would wait n times as long. So the duration of a run grows with the square root of n.

    `trip` is the duration of the grant's round in seconds, and `slots` is 1 for a lock.
    """
    return max(RUN, RUN_TRIPS * trip) * sqrt(slots)


class PassingOn(ReaderLines):
    """Gives the tasks of a line successive leases of one grant."""

    def successor(self, lease: LeaseRecord, now: float) -> LeaseRecord | None:
        """Return a lease of the same grant for the next task; None if the nodes must be asked."""
        line = lease.line
        if line is None or not lease.covered or now >= lease.run_until:
            return None
        successor = self._successor(line) if lease in line.holders else None
        return None if successor is None else successor.successor(lease, now)

    def pass_on(self, lease: LeaseRecord, successor: LeaseRecord) -> None:
        """Give the next task in line the lease that the method `successor` has returned."""
        line = lease.line
        assert line is not None
        contender = self._successor(line)
        assert contender is not None
        if contender is line.contender:
            line.contender, line.unreachable = None, False
            self._context.loop.call_soon(self._inherit, line, False)
        elif line.queue:
            line.queue.pop(contender)
        successor.line = line
        successor.run_until = lease.run_until
        del line.holders[lease]
        line.holders[successor] = None
        contender.line = None
        self._context.counters.hand_overs += 1
        self._context.counters.passed_on += 1
        contender.take(successor)

    def _inherit(self, line: Line[LeaseRecord], asking: bool) -> None:
        """Let the next task take over the place of the line. The subclass implements this."""
        raise NotImplementedError

    def _successor(self, line: Line[LeaseRecord]) -> Contender[LeaseRecord] | None:
        """Return the task that gets the grant next; None if no task can get it.

        A contender whose attempt is under way does not get the grant. The line of a semaphore can
        have a contender although this process has a lease.
        """
        contender = line.contender
        if contender is not None and not contender.asking:
            return contender
        return next(iter(line.queue)) if line.queue else None
