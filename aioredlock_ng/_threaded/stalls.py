"""End the leases of event loops that stand still or were closed, and the calls of closed loops.

Otherwise the engine, which runs on another thread, would renew these leases for ever. A waiting
call would keep its place in the queues of the nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioredlock_ng._engine.keeping.extender import LOOP_CLOSED
from aioredlock_ng._threaded.calls import Delivery
from aioredlock_ng._threaded.mailbox import Mailbox

if TYPE_CHECKING:
    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._threaded.engine_thread import EngineThread

__all__ = ["Stalls"]

_SHARE: Final = 0.25
"""Time between two checks, as a share of `stall_limit`."""

_LONGEST: Final = 1.0
"""Longest time in seconds between two checks. After the closing of a loop, its leases may still be
renewed for this time, and its calls may still wait."""


class _Ping:
    """A question that only a running event loop answers.

    Attributes:
        answered: True once the loop has run.
        unanswered_for: Seconds without an answer.
    """

    __slots__ = ("answered", "unanswered_for")

    def __init__(self) -> None:
        self.answered = False
        self.unanswered_for = 0.0

    def answer(self) -> None:
        """Record the answer. The pinged event loop runs this method."""
        self.answered = True


class Stalls:
    """Checks, on the engine's loop, the event loops whose tasks use one manager.

    Args:
        thread: The engine's thread, which knows the calls of the other loops.
        limit: Seconds after which a loop that stands still loses its leases. None: no limit.
    """

    def __init__(self, engine: Engine, thread: EngineThread, limit: float | None) -> None:
        self._engine = engine
        self._thread = thread
        self._limit = limit
        self._every = _LONGEST if limit is None else min(limit * _SHARE, _LONGEST)
        self._pings: dict[Mailbox, _Ping] = {}
        self._looked_at = engine.context.loop.time()
        self._schedule()

    def _schedule(self) -> None:
        self._engine.context.loop.call_later(self._every, self._look)

    def _look(self) -> None:
        now = self._engine.context.loop.time()
        # While the whole process was suspended, no loop could answer. That time must not end
        # leases, so each check counts at most two intervals as time without an answer.
        passed = min(now - self._looked_at, 2 * self._every)
        self._looked_at = now
        self._abandon_stranded_calls()
        for home, leases in self._by_home().items():
            if reason := self._fault(home, passed):
                for record in leases:
                    self._engine.extender.forsake(record, reason)
        for home in [home for home in self._pings if home.closed]:
            del self._pings[home]
        self._schedule()

    def _abandon_stranded_calls(self) -> None:
        """Cancel or undo the calls of tasks whose loops were closed."""
        for call in list(self._thread.pending):
            if isinstance(call.outcome, Delivery) and call.outcome.is_stranded:
                self._thread.pending.discard(call)
                # The engine may not have begun this call yet. The mailbox keeps the order.
                self._thread.post(call.abandon)

    def _by_home(self) -> dict[Mailbox, list[LeaseRecord]]:
        found: dict[Mailbox, list[LeaseRecord]] = {}
        for record in self._engine.extender.leases:
            if isinstance(record.home, Mailbox):
                found.setdefault(record.home, []).append(record)
        return found

    def _fault(self, home: Mailbox, passed: float) -> str:
        """Return the reason why a loop loses its leases; "" if the loop keeps its leases."""
        if home.closed:
            return LOOP_CLOSED
        if self._limit is None:
            return ""
        ping = self._pings.get(home)
        if ping is None or ping.answered:
            ping = self._pings[home] = _Ping()
            try:
                home.post(ping.answer)
            except RuntimeError:
                return LOOP_CLOSED
            return ""
        ping.unanswered_for += passed
        if ping.unanswered_for < self._limit:
            return ""
        return f"its holder's event loop stood still for {ping.unanswered_for:.1f} s"
