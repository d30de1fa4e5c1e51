"""The true time, and the event loops of the simulated processes. No code here waits for real.

Each process has an event loop, whose clock may run fast or slow. A loop can be stopped: its
callbacks wait, and its clock goes on. A loop can also be suspended. Then the clock of the loop
stands still too, as `time.monotonic` does, and only the boot time that the engine reads goes on.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

__all__ = ["ProcessLoop", "World"]

_EPSILON = 1e-9
"""Seconds by which a timer may be early, as in asyncio's own loops. Rounding errors are smaller."""

MOST_EVENTS = 1_000_000
"""Number of events after which a run counts as endless. A usual run has thousands."""

MOST_CALLBACKS = 100_000
"""Number of callbacks of one process at one instant after which its loop counts as endless."""


class World:
    """The true time, and all events that are scheduled.

    Attributes:
        now: True time in seconds.
        seed: Seed of all random numbers.
        log: Events, as tuples of a true time and words.
        on_trouble: Called with a message that an event loop would have logged, for example about an
            unhandled exception.
    """

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.seed = seed
        self.log: list[tuple[object, ...]] = []
        self.on_trouble: Callable[[str], None] = self.note
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def rng(self, name: str) -> Random:
        """Return a random generator for one part of the world.

        Without this part, the other parts still draw the same numbers.
        """
        return Random(f"{self.seed}/{name}")

    def note(self, *words: object) -> None:
        """Write an event to the log."""
        self.log.append((self.now, *words))

    def at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        """Call `call` at true time `when`. Calls of one instant run in the order in which they were
        requested.
        """
        self._number += 1
        heapq.heappush(self._heap, (max(when, self.now), self._number, call, args))

    def run(self, until: float, stop: Callable[[], bool]) -> None:
        """Run all events up to true time `until`, or until `stop` returns True."""
        heap = self._heap
        most = self._number + MOST_EVENTS
        while heap and heap[0][0] <= until and not stop():
            self.now, _, call, args = heapq.heappop(heap)
            call(*args)
            if self._number > most:
                self.on_trouble(f"{MOST_EVENTS:,} events, and the run has not ended")
        if not stop() and self.now < until:
            self.now = until


@dataclass(slots=True)
class _Hands:
    """The state of a process's clock: its offset, and the true seconds of its suspends."""

    offset: float
    suspended: float = 0.0


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one process, with only the methods that the library and asyncio call.

    A method without a docstring does the same as in `asyncio.AbstractEventLoop`.

    Args:
        world: The world of the process.
        name: Name of the process in the log.
        rate: Seconds of the process's clock per true second.

    Attributes:
        rng: Random numbers of the process.
        stopped: True while no callback runs.
        resumed_at: True time at which the loop last resumed.
        stood: Total seconds of the loop's own time for which it was stopped.
        was_suspended: True once the loop was suspended.
        process: The client that has this loop. None for other loops.
    """

    def __init__(self, world: World, name: str, rate: float = 1.0) -> None:
        self.world = world
        self.name = name
        self.rng = world.rng(name)
        self.stopped = False
        self.resumed_at = 0.0
        self.stood = 0.0
        self.was_suspended = False
        self.process: Any = None
        self.rate = rate
        # Each process has another time, so that code which mixes two clocks fails. No clock shows
        # 0.0, so that code which takes 0.0 for no time fails.
        self._hands = _Hands(1000.0 + 1000.0 * self.rng.random())
        self._running = self._kicked = False
        self._ready: deque[asyncio.Handle] = deque()
        self._received: list[asyncio.Handle] = []
        self._overdue: list[asyncio.TimerHandle] = []
        self._countdowns: list[list[Any]] = []
        self._stops = 0

    def clock(self) -> float:
        """Return the boot time of the process, which goes on during a suspend."""
        return self._hands.offset + self.rate * self.world.now

    def true(self, clock: float) -> float:
        """Return the true time at which `self.clock()` returns this value."""
        return (clock - self._hands.offset) / self.rate

    def time(self) -> float:
        """Return the time of the loop, which stands still during a suspend."""
        return self._hands.offset + self.rate * (self.world.now - self._hands.suspended)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._running and not self._kicked:
            self._kicked = True
            self.world.at(self.world.now, self._kick)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.world.at(self._true_of(when), self._fire, handle)
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an exception that no code has handled."""
        error = context.get("exception")
        self.world.on_trouble(
            f"{self.name}: {context.get('message')}: {type(error).__name__} {error}"
        )

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing, because `_fire` ignores a cancelled timer."""

    def receive(self, callback: Callable[..., object], *args: Any) -> None:
        """Run a callback for an event from outside, at once or when the process goes on."""
        handle = asyncio.Handle(callback, args, self)
        if self.stopped:
            self._received.append(handle)
        else:
            self._ready.append(handle)
            self._drain()

    def within(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call a function as this process at this instant, even if the process is stopped."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            return call(*args)
        finally:
            events._set_running_loop(before)

    def after(self, callbacks: int, call: Callable[[], None]) -> None:
        """Call `call` after so many callbacks, even between two callbacks of one instant."""
        self._countdowns.append([callbacks, call])

    def forget_stops(self) -> None:
        """Cancel all calls that were requested by `after`."""
        self._countdowns.clear()

    def stop_for(self, seconds: float, *, suspended: bool) -> None:
        """Stop the loop for so many true seconds."""
        if self.stopped:
            return
        self.stopped = True
        self._stops += 1
        self.world.at(self.world.now + seconds, self.resume, self._stops, self.world.now, suspended)

    def resume(self, stop: int, since: float, suspended: bool) -> None:
        """End the stop with this number, which began at true time `since`."""
        if not self.stopped or stop != self._stops:
            return
        self.resumed_at = self.world.now
        if suspended:
            self.was_suspended = True
            self._hands.suspended += self.world.now - since
        else:
            self.stood += self.rate * (self.world.now - since)
        self.go_on()

    def stood_at(self, at: float, *, together: bool = False) -> float:
        """Return for how many true seconds the loop had stood still at `at`, while other loops of
        its process ran.
        """
        return 0.0

    def stood_without(self, at: float, most: float) -> float:
        """Return `stood_at` with at most `most` true seconds of each stop of the whole process."""
        return 0.0

    def go_on(self) -> None:
        """Run the waiting callbacks in asyncio's order: ready ones, received ones, then timers that
        are due.
        """
        self.stopped = False
        received, self._received = self._received, []
        overdue, self._overdue = self._overdue, []
        self._ready.extend(received)
        for handle in sorted(overdue, key=asyncio.TimerHandle.when):
            if handle.when() <= self.time() + _EPSILON:
                self._ready.append(handle)
            else:
                self.world.at(self._true_of(handle.when()), self._fire, handle)
        self._drain()

    def _true_of(self, when: float) -> float:
        # By rounding, a timer could be early. A real clock would have moved on by the next check of
        # the timer. This clock would not, and the loop would spin.
        return (when - self._hands.offset) / self.rate + self._hands.suspended + _EPSILON

    def _kick(self) -> None:
        self._kicked = False
        self._drain()

    def _fire(self, handle: asyncio.TimerHandle) -> None:
        if handle.cancelled():
            return
        if self.stopped:
            self._overdue.append(handle)
        elif handle.when() > self.time() + _EPSILON:
            self.world.at(self._true_of(handle.when()), self._fire, handle)
        else:
            self._ready.append(handle)
            self._drain()

    def _drain(self) -> None:
        if self._running:
            return
        ready, run, before = self._ready, 0, events._get_running_loop()
        self._running = True
        events._set_running_loop(self)
        try:
            while ready and not self.stopped:
                handle = ready.popleft()
                if handle.cancelled():
                    continue
                handle._run()
                run += 1
                if self._countdowns:
                    self._count_down()
                if run > MOST_CALLBACKS:
                    self.world.on_trouble(f"{self.name}: {run} callbacks at one instant")
                    ready.clear()
        finally:
            self._running = False
            events._set_running_loop(before)

    def _count_down(self) -> None:
        for countdown in list(self._countdowns):
            countdown[0] -= 1
            if countdown[0] <= 0:
                self._countdowns.remove(countdown)
                countdown[1]()
