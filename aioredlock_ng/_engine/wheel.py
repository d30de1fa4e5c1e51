"""Many instants, one timer: things due in the same slot of time are handed over together. It decides nothing."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Wheel"]

T = TypeVar("T")

MAX_SLEEP = 0.5
"""Seconds: the loop's timers stand still while the machine is suspended, the engine's clock does not."""

_STALLS = 64
"""Late firings that are remembered at most."""

_EPSILON = 1e-9
"""Seconds; absorbs the rounding of slot times, so that a timer that fires on time finds its slot due."""


class Wheel(Generic[T]):
    """Hands each item over at the start of the slot in which its instant lies: up to `width` early, never late.

    Args:
        loop: Whose timer is used.
        clock: The engine's clock; slots are counted in it.
        width: Seconds per slot.
        fire: Called with the items of each slot that is due; owners may still discard from that set meanwhile.
    """

    __slots__ = (
        "_armed_for",
        "_clock",
        "_due_at",
        "_fire",
        "_loop",
        "_move_from",
        "_slots",
        "_stalls",
        "_timer",
        "_width",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        width: float,
        fire: Callable[[set[T]], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._width = width
        self._fire = fire
        # By the slot's number as a float. The call of `int` would take longer than the rest of `add`.
        self._slots: dict[float, set[T]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = self._move_from = self._due_at = 0.0
        # Instants at which the timer fired late, and by how much. An entry ends when a longer one follows.
        self._stalls: deque[tuple[float, float]] = deque(maxlen=_STALLS)

    def add(self, item: T, at: float) -> set[T]:
        """Schedule `item`; returns the slot's set, from which the owner discards it to cancel."""
        items = self._slots.get(at // self._width)
        if items is None:
            items = self.slot(at)
        items.add(item)
        return items

    def slot(self, at: float) -> set[T]:
        """The set of what is due at `at`, to add to now: an empty one may be dropped when another is asked for."""
        slot = at // self._width
        items = self._slots.get(slot)
        if items is None:
            if self._timer is None or slot < self._armed_for:
                self._arm(slot)
            elif slot >= self._move_from and not self._slots.get(self._armed_for):
                # It would fire for nothing soon.
                self._drop_empty()
                self._arm(min([slot, *self._slots]))
            items = self._slots[slot] = set()
        return items

    def stall(self, since: float, now: float) -> float:
        """Return the longest time, in seconds, for which the timer was due and the loop did not run it.

        Only times that ended after `since` count, and one that lasts until `now`. The loop was blocked, or the process
        stopped, for as long or for up to `MAX_SLEEP` longer.
        """
        overdue = now - self._due_at if self._timer is not None else 0.0
        return max([overdue, *(late for ended, late in self._stalls if ended > since)])

    def stop(self) -> None:
        """Forget everything."""
        self._slots.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop_empty(self) -> None:
        """A slot whose items were all discarded is worth no timer.

        Each one that fires makes the loop sleep anew, and up to a millisecond longer, for that is what epoll counts in.
        """
        self._slots = {slot: items for slot, items in self._slots.items() if items}

    def _arm(self, slot: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = slot
        now = self._clock()
        delay = min(MAX_SLEEP, max(0.0, slot * self._width - now))
        self._due_at = now + delay
        # Not at each new slot: setting a timer takes a tenth of a hand-over's own work.
        self._move_from = slot + delay / self._width // 2
        self._timer = self._loop.call_later(delay, self._run)

    def _run(self) -> None:
        self._timer = None
        now = self._clock() + _EPSILON
        if (late := now - self._due_at) > self._width:
            while self._stalls and self._stalls[-1][1] <= late:
                self._stalls.pop()
            self._stalls.append((now, late))
        due = [slot for slot in self._slots if slot * self._width <= now]
        batches = [self._slots.pop(slot) for slot in due]
        self._drop_empty()
        if self._slots:
            self._arm(min(self._slots))
        for items in batches:
            if items:
                self._fire(items)
