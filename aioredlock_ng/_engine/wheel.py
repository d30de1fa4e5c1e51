"""One timer for many instants. Time has equal slots, and all items of a slot fire together."""

from __future__ import annotations

from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Wheel"]

T = TypeVar("T")

MAX_SLEEP = 0.5
"""Longest delay of the timer in seconds.

The timers of the loop stand still while the machine is suspended, but the clock of the engine does
not. So after the machine has woken up, the wheel notices late items within `MAX_SLEEP`. It notices
them earlier if an item needs a new slot.
"""

_STALLS = 64
"""Largest number of late firings that are remembered."""

_EPSILON = 1e-9
"""Tolerance for rounding errors, in seconds.

If a timer fires on time, its slot must count as due.
"""


class Wheel(Generic[T]):
    """A timer for many items.

    Each item is passed to `fire` at the start of the slot that contains its instant. So an item may
    come up to `width` seconds early, but the wheel adds no delay.

    Args:
        loop: The event loop of the timer. The timer runs in the context in which the wheel is made.
        clock: The clock of the engine, by which the instants of items are given.
        width: Seconds per slot.
        fire: Called once for each slot that is due, with the set of its items. During the call,
            items may still be discarded from that set.
    """

    __slots__ = (
        "_armed_for",
        "_clock",
        "_context_of_timer",
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
        # The number of a slot is a float. A call of `int` would take longer than the rest of `add`.
        self._slots: dict[float, set[T]] = {}
        self._timer: asyncio.TimerHandle | None = None
        # One timer serves the items of all callers. In the context of the caller that set it, the
        # events of other callers' items would have the context variables of this caller. Each timer
        # sets the next one, so these variables could stay in memory for ever.
        self._context_of_timer = copy_context()
        self._armed_for = self._move_from = self._due_at = 0.0
        # Instants at which the timer fired late, and the delays in seconds. A longer delay replaces
        # the shorter ones before it.
        self._stalls: deque[tuple[float, float]] = deque(maxlen=_STALLS)

    def add(self, item: T, at: float) -> set[T]:
        """Schedule `item` for the instant `at`.

        Returns:
            The set of items in the same slot. To cancel the item, discard it from this set.
        """
        items = self._slots.get(at // self._width)
        if items is None:
            items = self.slot(at)
        items.add(item)
        return items

    def slot(self, at: float) -> set[T]:
        """Return the items of the slot to which the instant `at` belongs.

        The caller must add items to the set immediately, because the wheel drops empty sets.
        """
        slot = at // self._width
        items = self._slots.get(slot)
        if items is None:
            if self._timer is None or slot < self._armed_for:
                self._arm(slot)
            elif slot >= self._move_from and not self._slots.get(self._armed_for):
                # Without this step, the timer would soon fire for a slot without items.
                self._drop_empty()
                self._arm(min([slot, *self._slots]))
            elif self._clock() > self._due_at + self._width:
                # The timer is late, for example because the machine was suspended. If the timer
                # were left as it is, the new item could be late, too.
                self._timer.cancel()
                self._set(0.0)
            items = self._slots[slot] = set()
        return items

    def stall(self, since: float, now: float) -> float:
        """Return the longest delay of the timer in seconds.

        A delay counts if it ended after `since` or still lasts. The event loop was blocked, or the
        process was suspended, for at least the returned time. The real time may be up to
        `MAX_SLEEP` longer.
        """
        overdue = now - self._due_at if self._timer is not None else 0.0
        return max([overdue, *(late for ended, late in self._stalls if ended > since)])

    def stop(self) -> set[T]:
        """Stop the timer, and return the items that were not passed to `fire`."""
        left: set[T] = set()
        for items in self._slots.values():
            left.update(items)
        self._slots.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return left

    def _drop_empty(self) -> None:
        """Drop the slots whose items were all discarded.

        A timer that fires for an empty slot makes the loop sleep twice instead of once. Each sleep
        may last up to a millisecond too long, because epoll counts in milliseconds.
        """
        self._slots = {slot: items for slot, items in self._slots.items() if items}

    def _arm(self, slot: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = slot
        now = self._clock()
        delay = min(MAX_SLEEP, max(0.0, slot * self._width - now))
        self._due_at = now + delay
        # Setting the timer takes a tenth as long as a hand-over. So most new slots do not set the
        # timer again.
        self._move_from = slot + delay / self._width // 2
        self._set(delay)

    def _set(self, delay: float) -> None:
        self._timer = self._loop.call_later(delay, self._run, context=self._context_of_timer)

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
