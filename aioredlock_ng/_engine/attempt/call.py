"""One call of `acquire()`: what its caller and its line know of it; it asks no node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioredlock_ng._engine.attempt.attempts import Attempts
from aioredlock_ng._engine.attempt.refusal import held_by_another, name_holder
from aioredlock_ng.errors import LockHeld
from aioredlock_ng.events import WaiterWoken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._core.tickets import WakeCause
    from aioredlock_ng._engine.attempt.releases import Releases
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.extender import Extender
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._engine.keeping.label_look import Look
    from aioredlock_ng._engine.spec import LockSpec
    from aioredlock_ng._engine.waiting.lines import Line, Lines

__all__ = ["Call"]


class Call(Attempts):
    """One call of `acquire()`.

    Args:
        context: The engine's surroundings.
        lines: Where to wait.
        releases: What undoes an attempt.
        extender: Who takes a holding over.
        spec: What is wanted.
        blocking_timeout: Seconds for all of it; None for ever, 0.0 one attempt without queueing.
        alone: Make the first attempt without queueing.

    Attributes:
        unreachable: True until an attempt could ask a quorum, and again while the last one could not.
        future: Resolves to the `Holding`, or to the error.
        keys: What it wants.
        fair: See `Contender.fair`.
        line: See `Contender.line`.
    """

    __slots__ = (
        "_alone",
        "_blocking_timeout",
        "_extender",
        "_limit",
        "_lines",
        "_look",
        "fair",
        "future",
        "keys",
        "line",
        "unreachable",
    )

    def __init__(
        self,
        context: Context,
        lines: Lines,
        releases: Releases,
        extender: Extender,
        spec: LockSpec,
        blocking_timeout: float | None,
        *,
        alone: bool,
    ) -> None:
        self.context = context
        self._lines = lines
        self._releases = releases
        self._extender = extender
        self.spec = spec
        self._blocking_timeout = blocking_timeout
        self._alone = alone
        self.called_at = context.clock()
        self.round: Round | None = None
        self.before: Round | None = None
        self._second: Round | None = None
        self._fence = self._proposed_us = self.attempts = 0
        self._covers = self._doubted = False
        self._limit: asyncio.TimerHandle | None = None
        self._look: Look | None = None
        self.unreachable = True
        self.keys = spec.keys
        self.fair = spec.fair
        self.line: Line | None = None
        self.future: asyncio.Future[Holding] = context.loop.create_future()

    def successor(self, holding: Holding, now: float) -> Holding | None:
        """See `Contender.successor`."""
        # A caller that was cancelled in this tick is about to give up.
        return None if self.future.cancelled() else holding.passed_on(self.spec, now)

    def take(self, holding: Holding) -> None:
        """See `Contender.take`."""
        self._stop()
        self.context.counters.acquired += 1
        self._extender.adopt(holding)
        self.future.set_result(holding)

    def refuse_deadlock(self, holders: Sequence[Holding]) -> None:
        """See `Contender.refuse_deadlock`."""
        task = asyncio.current_task()
        if self._blocking_timeout is not None or task is None:
            return
        now = self.context.clock()
        if any(holding.task is task and holding.remaining(now) > 0.0 for holding in holders):
            why = "this very task holds it in an enclosing `async with` and would wait for ever"
            raise held_by_another(LockHeld, why, self, holders)

    def _woken(self, cause: WakeCause) -> None:
        counters = self.context.counters
        counters.looks += 1
        if cause == "told":
            counters.wakeups += 1
        elif cause == "expiry":
            counters.wakeups_expiry += 1
        else:
            counters.wakeups_fallback += 1
        if (tell := self.context.tell) is not None:
            tell(WaiterWoken(self.spec.resource, cause))

    async def name_holder(self, error: LockHeld) -> None:
        """Ask the nodes for the label of the holder, if the error that ended this does not name it, and say it there.

        Safety: cancelled, nothing has changed.
        """
        await name_holder(error, self)

    def _stop(self) -> None:
        self._hear_no_more()
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
