"""A timer that may fire early, and so is rarely set again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Alarm"]

LEAST_DELAY = 0.0005
"""Shortest delay in seconds. A timer of the event loop may fire a little early. Without this delay,
the alarm would then be set again and again."""


class Alarm:
    """Calls a function at an instant or earlier.

    An alarm that is set to an earlier instant stays as it is. Most messages to a waiter postpone
    its next event, and a new timer for each message would take more time than the message.

    Args:
        due: Compares the time with its next event, and sets the alarm again if it is too early.
    """

    __slots__ = ("_due", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, due: Callable[[], None]) -> None:
        self._loop = loop
        self._due = due
        self._timer: asyncio.TimerHandle | None = None

    def set(self, delay: float) -> None:
        """Call the function after `delay` seconds, or earlier."""
        delay = max(delay, LEAST_DELAY)
        if self._timer is None or self._timer.when() > self._loop.time() + delay:
            self.stop()
            self._timer = self._loop.call_later(delay, self._fire)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._due()
