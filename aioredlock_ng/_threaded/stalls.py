"""End the leases of event loops that stand still or were closed.

Otherwise the engine, which runs on another thread, would renew these leases for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioredlock_ng._engine.keeping.extender import LOOP_CLOSED
from aioredlock_ng._threaded.mailbox import Mailbox

if TYPE_CHECKING:
    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord

__all__ = ["Stalls"]

_SHARE: Final = 0.25
"""Time between two checks, as a share of `stall_limit`."""

_LONGEST: Final = 1.0
"""Longest time in seconds between two checks. A lease whose loop was closed may still be renewed
for this time."""


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
    """Checks, on the engine's loop, the event loops whose tasks hold leases of one manager.

    Args:
        limit: Seconds after which a loop that stands still loses its leases. None: no limit.
    """

    def __init__(self, engine: Engine, limit: float | None) -> None:
        self._engine = engine
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
        for home, leases in self._by_home().items():
            if reason := self._fault(home, passed):
                for record in leases:
                    self._engine.extender.forsake(record, reason)
        for home in [home for home in self._pings if home.closed]:
            del self._pings[home]
        self._schedule()

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
