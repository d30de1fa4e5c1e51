"""One term of a leader: it ends the leading task before another candidate can lead.

The term asks no node. It watches `lease.remaining()`, which renewals keep above the margin. Once it
falls to `step_down`, the task is cancelled, and the rest of the ttl is its time to end.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from aioredlock_ng.errors import ConfigurationError, LockLost, LockReleased
from aioredlock_ng.events import RenewalSlow, SteppingDown, TermOutlived
from aioredlock_ng.options import positive_seconds

if TYPE_CHECKING:
    from aioredlock_ng.events import EventSink
    from aioredlock_ng.lease import Lease
    from aioredlock_ng.options import Options

__all__ = ["Margins", "Term", "margins_of"]

_STEP_DOWN_SHARE: Final = 1 / 3
"""Share of the ttl in which a leader has to end.

A lease is renewed at a third, so another third is left for retries.
"""

_RENEWED_AT: Final = 2 / 3
"""Share of the ttl that is left when a renewal is sent."""

_SHORTEST_NAP: Final = 0.001
"""Seconds of the shortest timer. A timer may fire slightly early because of rounding. It would then
be set again to zero seconds."""

_LONGEST_NAP: Final = 0.5
"""Seconds of the longest timer. A timer of the event loop does not count the time for which the
machine is suspended."""

_LAST_WORDS: Final = 0.1
"""Seconds from a loss to `TermOutlived`. A body that obeys its cancellation ends sooner."""


@dataclass(frozen=True, slots=True)
class Margins:
    """Limits for what is left of a leader's lease.

    Attributes:
        step_down: The leader is cancelled once at most this many seconds remain.
        slow: A renewal counts as slow once at most this many seconds remain.
        max_hold: Seconds that a term lasts at most; None: no limit.
    """

    step_down: float
    slow: float
    max_hold: float | None


class Term:
    """The task of one leader, and the reason why it must end.

    Args:
        lease: The leader's lease, just granted.
        task: The task that leads. The term cancels the task, and undoes the cancellation at its
            end, as `asyncio.timeout` does.
        margins: Limits for `lease.remaining()`.
        emit: Receives the events.

    Attributes:
        lease: The leader's lease.
        task: The task that leads.
        ended_by: The reason why the task must end; None while it may lead.
        emit: Receives the events.
    """

    def __init__(
        self, lease: Lease, task: asyncio.Task[object], margins: Margins, emit: EventSink
    ) -> None:
        self.lease = lease
        self.task = task
        self.ended_by: Literal["step_down", "lost", "resigned"] | None = None
        self._margins = margins
        self.emit = emit
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._cancelling = task.cancelling()
        self._cancels = 0
        self._slow = self._done = False
        self._over_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Watch the lease from now on.

        Raises:
            QuorumUnreachable: The lease is over already. Nothing is watched.
        """
        self.lease.entered(self.task, self._lost)
        self._watch()

    def end(self, cause: Literal["step_down", "lost", "resigned"]) -> None:
        """Cancel the task, unless the task itself is the caller.

        A task that resigns, or that finds the loss itself, is notified by the call that it made.
        """
        if self._done:
            # The lease is being released. A cancellation now would stop the holder from waiting for
            # the answer.
            return
        if self.ended_by is None:
            self.ended_by = cause
        if self.task is not asyncio.current_task():
            self._cancels += self.task.cancel()

    def left(self) -> bool:
        """Stop watching; the task has ended its work.

        Returns:
            True if the calling task was cancelled by this term and by no other code.
        """
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.lease.left()
        cancels, self._cancels = self._cancels, 0
        for _ in range(cancels):
            self.task.uncancel()
        alone = self.task.cancelling() <= self._cancelling
        return cancels > 0 and alone and self.task is asyncio.current_task()

    @property
    def leading(self) -> bool:
        """True while the task may act as the leader. Any thread may read it."""
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
        if self._over_since is None:
            self._over_since = self._loop.time()
            self._set(_LAST_WORDS)

    def _watch(self) -> None:
        """Compare what is left with the next limit, and set the timer for it."""
        left, margins = self.lease.remaining(), self._margins
        if self._over_since is not None:
            self.emit(
                TermOutlived(
                    self.lease.resource, self.lease.fence, self._loop.time() - self._over_since
                )
            )
            return
        if left <= 0.0:
            # After a standstill of the loop this timer may run before that of the lease.
            # Without this check the loss would be declared up to half a second later.
            with suppress(LockLost, LockReleased):
                self.lease.check()
            return
        limit = 0.0
        if self.ended_by is None and left <= margins.step_down:
            self.emit(SteppingDown(self.lease.resource, self.lease.fence, left))
            self.end("step_down")
        elif self.ended_by is None and left <= margins.slow:
            if not self._slow and not self._ends_by_max_hold(left):
                self.emit(RenewalSlow(self.lease.resource, self.lease.fence, left))
            self._slow = True
            limit = margins.step_down
        elif self.ended_by is None:
            self._slow = False
            limit = margins.slow
        self._set(min(max(left - limit, _SHORTEST_NAP), _LONGEST_NAP))

    def _ends_by_max_hold(self, left: float) -> bool:
        most = self._margins.max_hold
        return most is not None and self._began + most - self._loop.time() <= left + _LAST_WORDS

    def _set(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay, self._watch)


def margins_of(
    ttl: float, step_down: float | None, max_hold: float | None, options: Options
) -> Margins:
    """Return the limits for what is left of a leader's lease.

    Raises:
        ConfigurationError: `step_down` is unusable, or the ttl is too short for it.
    """
    # A renewal is sent when two thirds of the ttl are left, and takes the node timeout at most.
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
    return Margins(least, (least + renewed) / 2, max_hold)
