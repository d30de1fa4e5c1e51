"""One term of a leader: the term ends the leading task before another candidate can lead.

The term sends no requests to the nodes. The term watches `lease.remaining()`, which renewals keep
above `step_down` seconds. When only `step_down` seconds remain, the term cancels the task. The task
can use these seconds to end its work.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from inspect import isawaitable
from math import inf
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from aioredlock_ng._leases.interruption import Interruption
from aioredlock_ng.errors import ConfigurationError, LockLost, LockReleased
from aioredlock_ng.events import RenewalSlow, SteppingDown, TermOutlived
from aioredlock_ng.options import positive_seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioredlock_ng.events import EventSink
    from aioredlock_ng.lease import Lease
    from aioredlock_ng.options import Options

__all__ = ["Margins", "Term", "margins_of", "work_of"]

R = TypeVar("R")

_STEP_DOWN_SHARE: Final = 1 / 3
"""Default of `step_down` as a share of the ttl.

A lease is renewed after a third of its ttl, so the second third is left for retries.
"""

_RENEWED_AT: Final = 2 / 3
"""Share of the ttl that is left when a renewal is sent."""

_SHORTEST_NAP: Final = 0.001
"""Shortest delay of a timer in seconds. A timer may fire slightly early because of rounding.
Without this bound, the next timer would then fire at once, perhaps many times."""

_LONGEST_NAP: Final = 0.5
"""Longest delay of a timer in seconds. While the machine is suspended, the timers of the event loop
stand still, so a longer delay would end long after the deadline."""

_LAST_WORDS: Final = 0.1
"""Seconds from a loss, or from the deadline, to the event `TermOutlived`. A body that obeys its
cancellation ends sooner."""


@dataclass(frozen=True, slots=True)
class Margins:
    """Limits for the remaining time of a leader's lease.

    Attributes:
        step_down: The leader is cancelled when its lease has only this many seconds left.
        slow: The renewal counts as slow when the lease has only this many seconds left.
    """

    step_down: float
    slow: float


class Term(Interruption):
    """The task of one leader, and the reason why it must end.

    Attributes:
        lease: The leader's lease.
        task: The task that leads. The term cancels this task.
        ended_by: The reason why the task must end; None while it may lead.
        emit: Receives the events.
    """

    def __init__(
        self, lease: Lease, task: asyncio.Task[object], margins: Margins, emit: EventSink
    ) -> None:
        super().__init__(task)
        self.lease = lease
        self.ended_by: Literal["step_down", "lost", "resigned"] | None = None
        self._margins = margins
        self.emit = emit
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._slow = self._done = self._reported = False
        self._cleans_until = -inf
        self._timer: asyncio.TimerHandle | None = None
        self._context = copy_context()

    def begin(self) -> None:
        """Watch the lease from now on.

        Raises:
            QuorumUnreachable: The lease has already ended. The watch does not begin.
        """
        self.lease.expire_at_close()
        self.lease.entered(self.task, self._lost)
        # The first look comes in a callback of the loop, because a look in this task itself could
        # not cancel the task.
        self._set(0.0)

    def end(self, cause: Literal["step_down", "lost", "resigned"]) -> None:
        """Cancel the task, unless the task itself is the caller.

        A task that resigns, or that finds the loss by a call of its own, needs no cancellation.
        """
        if self._done:
            # The lease is being released. A cancellation now would interrupt the wait for the
            # release.
            return
        if self.ended_by is None:
            self.ended_by = cause
        self.cancel()

    def withdraw(self) -> None:
        """Cancel the task because other code resigns.

        A further call has no effect for `step_down` seconds, because it would interrupt the
        clean-up of the body. Then it cancels again, because the body may have ignored the first
        cancellation.
        """
        now = self._loop.time()
        if now >= self._cleans_until:
            self._cleans_until = now + self._margins.step_down
            self.end("resigned")

    def left(self, *, in_child: bool) -> bool:
        """Stop the watch, because the task has ended its work.

        `in_child` is True in a forked child. The task of the parent works on.

        Returns:
            True if this term, and no other code, cancelled the calling task.
        """
        self._done = True
        # While the event loop stood still, no timer could report that the task worked past the
        # loss. So the event is sent here.
        if not in_child:
            self._outlived()
        self._stop()
        self.lease.left()
        return self.take_back()

    @property
    def leading(self) -> bool:
        """True while the task may act as the leader. Any thread may read the property."""
        return self.ended_by is None and self.lease.remaining() > self._margins.step_down

    def error(self, *, lost: bool) -> LockLost | LockReleased | None:
        """Return the reason why the term ended, as an error; None if the task ended by itself.

        Args:
            lost: True if the lease was known to be lost when the term ended.
        """
        if lost:
            return self.lease.lost_error()
        name, led = self.lease.resource, self._loop.time() - self._began
        if self.ended_by == "step_down":
            return LockLost(
                f"the leader of {name!r} stepped down after {led:.3f} s:"
                f" no more than {self._margins.step_down:g} s of its lease were left",
                resource=name,
                elapsed=led,
            )
        if self.ended_by == "resigned":
            return LockReleased(f"the leader of {name!r} resigned after {led:.3f} s")
        return None

    @property
    def led_for(self) -> float:
        """Seconds since the term began."""
        return self._loop.time() - self._began

    def _lost(self) -> None:
        self.end("lost")
        # Report an outlived lease in a callback of the timer, in the context of the task. This
        # method may run in another context.
        self._set(_LAST_WORDS - self.lease.overdue)

    def _watch_end(self) -> None:
        """Report the task as soon as it has worked for too long after the loss of the lease."""
        if not self._outlived():
            self._set(_LAST_WORDS - self.lease.overdue)

    def _outlived(self) -> bool:
        """Return True if the task has worked for too long after the loss, and report it once."""
        over_for = self.lease.overdue
        if over_for <= _LAST_WORDS:
            return False
        if not self._reported:
            self._reported = True
            self.emit(TermOutlived(self.lease.resource, self.lease.fence, over_for))
        return True

    def _watch(self) -> None:
        """Compare the remaining time with the next limit, and set the timer for that limit."""
        left, margins = self.lease.remaining(), self._margins
        if left <= 0.0:
            if self.lease.held:
                # After a standstill of the loop, this timer may run before the timer of the lease.
                # So declare the loss here, which cancels the task.
                with suppress(LockLost, LockReleased):
                    self.lease.check()
            # A task that found the loss by its own `extend` got an error, and may have ignored it.
            if self.lease.lost:
                self._watch_end()
            return
        limit = 0.0
        if self.ended_by is None and left <= margins.step_down:
            cause: Literal["unrenewed", "max_hold"] = (
                "max_hold" if self.lease.ends_by_max_hold(_LAST_WORDS) else "unrenewed"
            )
            self.emit(SteppingDown(self.lease.resource, self.lease.fence, left, cause))
            self.end("step_down")
        elif self.ended_by is None and left <= margins.slow:
            if not self._slow and not self.lease.ends_by_max_hold(_LAST_WORDS):
                self.emit(RenewalSlow(self.lease.resource, self.lease.fence, left))
            self._slow = True
            limit = margins.step_down
        elif self.ended_by is None:
            self._slow = False
            limit = margins.slow
        self._set(left - limit)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, delay: float) -> None:
        self._stop()
        delay = min(max(delay, _SHORTEST_NAP), _LONGEST_NAP)
        self._timer = self._loop.call_later(delay, self._watch, context=self._context)


def margins_of(
    ttl: float, step_down: float | None, max_hold: float | None, options: Options
) -> Margins:
    """Return the limits for the remaining time of a leader's lease.

    Raises:
        ConfigurationError: `step_down` is unusable, or the ttl or `max_hold` is too short for it.
    """
    # A renewal is sent when two thirds of the ttl are left, and takes at most the node timeout.
    renewed = ttl * _RENEWED_AT - options.drift(ttl) - options.node_timeout
    least = (
        ttl * _STEP_DOWN_SHARE if step_down is None else positive_seconds("step_down", step_down)
    )
    if least >= renewed:
        what = (
            f"ttl={ttl:g} is too short for an election"
            if step_down is None
            else f"step_down={least:g} is too long"
        )
        raise ConfigurationError(
            f"{what}: with ttl={ttl:g} and node_timeout={options.node_timeout:g} a slow renewal"
            f" leaves {max(renewed, 0.0):.4g} seconds, and step_down={least:.4g} must be less;"
            " raise ttl or lower step_down"
        )
    if max_hold is not None and max_hold <= least:
        raise ConfigurationError(
            f"max_hold={max_hold:g} must be more than step_down={least:g}; raise max_hold or lower"
            " step_down"
        )
    return Margins(least, (least + renewed) / 2)


def work_of(main: Callable[[Lease], Awaitable[R]], lease: Lease) -> Awaitable[R]:
    """Call `main` with the lease of a term, and return the work that the leader awaits.

    Raises:
        ConfigurationError: The result of `main` cannot be awaited.
    """
    work = main(lease)
    if not isawaitable(work):
        raise ConfigurationError(
            "main must be a coroutine function that takes a lease, but it returned an object of the"
            f" type {type(work).__name__}; define it by `async def`, without `yield`"
        )
    return work
