"""A timer that may fire a little early or late, and so is rarely set again."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Alarm"]

LEAST_DELAY = 0.001
"""Shortest delay in seconds, and longest time by which an alarm may be late.

A timer of the event loop may fire a little early, with uvloop by half a millisecond. Without this
delay, the alarm would then be set again and again. The same event is planned again after each
message, and each time rounding moves it by some microseconds."""


class Alarm:
    """Calls a function at an instant, earlier, or up to `LEAST_DELAY` later.

    If the alarm is already set to an earlier instant, or to at most `LEAST_DELAY` later, it stays
    as it is. Most messages to a waiter postpone its next event. A new timer for each message would
    take more time than the message.
    """

    __slots__ = ("_at", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def set(self, delay: float, due: Callable[[], None]) -> None:
        """Call `due` after `delay` seconds, or at an instant described above.

        The function compares the time with the next event, and sets the alarm again if it is too
        early. The alarm keeps the function only until the call. Otherwise the alarm and its owner
        would form a reference cycle.
        """
        delay = max(delay, LEAST_DELAY)
        at = self._loop.time() + delay
        if at < self._at - LEAST_DELAY:
            self.stop()
            self._at = at
            self._timer = self._loop.call_later(delay, self._fire, due)

    def stop(self) -> None:
        self._at = inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self, due: Callable[[], None]) -> None:
        self._at, self._timer = inf, None
        due()
