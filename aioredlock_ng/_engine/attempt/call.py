"""The state of one call of `acquire()` for its caller and its waiting line. It asks no node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.slots import blocks_itself
from aioredlock_ng._engine.acting import acting_task
from aioredlock_ng._engine.attempt.attempts import Attempts
from aioredlock_ng._engine.attempt.refusal import held_by_another, name_holder
from aioredlock_ng.errors import LockHeld
from aioredlock_ng.events import WaiterWoken

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from aioredlock_ng._core.tickets import WakeCause
    from aioredlock_ng._engine.attempt.releases import Releases
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.extender import Extender
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._engine.keeping.label_look import Look
    from aioredlock_ng._engine.spec import LockSpec
    from aioredlock_ng._engine.waiting.line import Line
    from aioredlock_ng._engine.waiting.lines import Lines

__all__ = ["Call"]


class Call(Attempts):
    """One call of `acquire()`.

    Args:
        context: The surroundings of the engine.
        lines: The waiting lines of this manager.
        releases: Sends the undo of an attempt.
        extender: Takes over the lease that is granted.
        spec: The lock that is wanted.
        blocking_timeout: Longest wait in seconds. None waits for ever; 0.0 makes one attempt and
            does not queue.
        alone: True if the first attempt does not join a line.

    Attributes:
        unreachable: True before the first attempt, and if the latest attempt reached no quorum.
        future: Resolves to the `Holding`, or to the error.
        keys: The keys of the lock, or of all slots of the semaphore.
        line_key: The name of the line.
        fair: True if the call stands in the queues by itself, and takes no grant that is passed on.
        line: The line in which the call waits, from `Lines.join` on.
        booked: See `Contender`.
    """

    __slots__ = (
        "_alone",
        "_blocking_timeout",
        "_extender",
        "_limit",
        "_lines",
        "_look",
        "booked",
        "fair",
        "future",
        "keys",
        "line",
        "line_key",
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
        self.spec = self.target = spec
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
        self.line_key = spec.line
        self.fair = spec.fair
        self.line: Line[Holding] | None = None
        self.booked: Line[Holding] | None = None
        self.future: asyncio.Future[Holding] = context.loop.create_future()

    def successor(self, holding: Holding, now: float) -> Holding | None:
        """Return the lease that follows `holding` in its grant; None if the nodes must be asked."""
        # A caller that was cancelled in this tick has not called `give_up` yet. It takes no lease.
        if self.future.cancelled():
            return None
        slots, number = self.spec.slots, holding.spec.number
        wanted = self.spec if slots is None or number is None else slots[number]
        return holding.passed_on(wanted, now)

    def take(self, holding: Holding) -> None:
        """End the wait: the caller gets this lease."""
        self._stop()
        self.context.counters.acquired += 1
        self._extender.adopt(holding)
        self.future.set_result(holding)

    def refuse_deadlock(self, holders: Sequence[Holding]) -> None:
        """Raise if the calling task itself holds the lock and would wait for ever.

        For a semaphore it must hold all slots. A call with a time limit ends by itself, so it is
        not refused.

        Raises:
            LockHeld: The task holds the lock through an enclosing `async with`.
        """
        task = acting_task()
        if self._blocking_timeout is not None or task is None:
            return
        now = self.context.clock()
        own = {
            key
            for held in holders
            if held.task is task and held.remaining(now) > 0.0
            for key in held.spec.keys
        }
        if blocks_itself(self.keys, own, any_one=self.spec.slots is not None):
            why = "this very task holds it in an enclosing `async with` and would wait for ever"
            raise held_by_another(LockHeld, why, self, holders)

    @property
    def _held_by(self) -> str:
        """Say who has the lock, for messages."""
        slots = self.spec.slots
        return "held by another" if slots is None else f"held by others, in all {slots.limit} slots"

    def _woken(self, cause: WakeCause) -> None:
        counters = self.context.counters
        counters.looks += 1
        if cause == "told":
            counters.wakeups += 1
        elif cause == "expiry":
            counters.wakeups_expiry += 1
        else:
            counters.wakeups_fallback += 1
        if (report := self.context.report) is not None:
            report(WaiterWoken(self.spec.resource, cause))

    async def name_holder(self, error: LockHeld) -> None:
        """Add the label of the holder to the error that ended this call, unless it has one.

        Safety: a cancellation leaves the error as it was.
        """
        await name_holder(error, self)

    def _stop(self) -> None:
        self._hear_no_more()
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
