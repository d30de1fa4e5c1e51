"""End the leases of event loops that stand still or were closed, while the engine renews them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioredlock_ng._engine.keeping.extender import LOOP_CLOSED
from aioredlock_ng._threaded.mailbox import Mailbox

if TYPE_CHECKING:
    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._engine.keeping.holding import Holding

__all__ = ["Stalls"]

_SHARE: Final = 0.25
"""Share of `stall_limit` between two looks. A standstill is noticed that much later at most."""

_LONGEST: Final = 1.0
"""Seconds between two looks at most. A lease whose loop was closed is renewed for so long."""


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
        """Answer. This runs on the event loop that was asked."""
        self.answered = True


class Stalls:
    """Looks after the event loops that hold leases of one manager. It runs on the engine's loop.

    Args:
        engine: The engine of the manager.
        limit: Seconds after which a loop that stands still loses its leases. None: never.
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
        # The process may have been stopped, and the loops could not answer meanwhile.
        passed = min(now - self._looked_at, 2 * self._every)
        self._looked_at = now
        for home, holdings in self._by_home().items():
            if reason := self._fault(home, passed):
                for holding in holdings:
                    self._engine.extender.forsake(holding, reason)
        for home in [home for home in self._pings if home.closed]:
            del self._pings[home]
        self._schedule()

    def _by_home(self) -> dict[Mailbox, list[Holding]]:
        found: dict[Mailbox, list[Holding]] = {}
        for holding in self._engine.extender.holdings:
            if isinstance(holding.home, Mailbox):
                found.setdefault(holding.home, []).append(holding)
        return found

    def _fault(self, home: Mailbox, passed: float) -> str:
        """Return the reason why a loop loses its leases; "" while it runs."""
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
