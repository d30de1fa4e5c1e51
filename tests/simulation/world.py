"""True time, and event loops that live in it: one per simulated process, each with a clock of its
own; nothing here waits.

A process is an event loop whose clock may run fast or slow, which can be stopped (its callbacks
wait, its clock goes on) or suspended (its loop's clock stands still too, as `time.monotonic` does;
the engine's boot time goes on).
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
"""Seconds by which a timer may be early, as in asyncio's own loops; absorbs rounding."""

MOST_EVENTS = 1_000_000
"""Events of one run after which something is taken to go on for ever; a run has thousands."""

MOST_CALLBACKS = 100_000
"""Callbacks of one process at one instant after which it is taken to be caught in a loop without
end.
"""


class World:
    """True time and everything that is going to happen in it.

    Attributes:
        now: True time, seconds.
        seed: Seed of all randomness.
        log: Events, as tuples of true time and words.
        on_trouble: Called with a message that an event loop would have logged, as for an exception
            without a handler.
    """

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.seed = seed
        self.log: list[tuple[object, ...]] = []
        self.on_trouble: Callable[[str], None] = self.note
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def rng(self, name: str) -> Random:
        """Randomness of one part: the others draw the same whether that part is there or not."""
        return Random(f"{self.seed}/{name}")

    def note(self, *words: object) -> None:
        """Write to the log."""
        self.log.append((self.now, *words))

    def at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        """Call at true time `when`; calls of one instant run in the order of their requests."""
        self._number += 1
        heapq.heappush(self._heap, (max(when, self.now), self._number, call, args))

    def run(self, until: float, stop: Callable[[], bool]) -> None:
        """Let everything happen up to true time `until`, or until `stop`."""
        heap = self._heap
        most = self._number + MOST_EVENTS
        while heap and heap[0][0] <= until and not stop():
            self.now, _, call, args = heapq.heappop(heap)
            call(*args)
            if self._number > most:
                self.on_trouble(f"{MOST_EVENTS:,} events and no end")
        if not stop() and self.now < until:
            self.now = until


@dataclass(slots=True)
class _Hands:
    """Where a process's clock stands: its offset, and the true seconds for which the process was
    suspended.
    """

    offset: float
    suspended: float = 0.0


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one process: what the library and asyncio's own classes call, and no more.

    Args:
        world: The world of the process.
        name: Name of the process in the log.
        rate: Seconds of its clock per true second.

    Attributes:
        rng: Random numbers of the process.
        stopped: True while no callback runs.
        resumed_at: True time at which it last resumed.
        stood: Total seconds of the loop's own time for which it was stopped.
        was_suspended: True once it was suspended.
        process: The client that has this loop; None for other loops.
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
        # Nobody's clock is anybody else's, and 0.0 is never a time.
        self._hands = _Hands(1000.0 + 1000.0 * self.rng.random())
        self._running = self._kicked = False
        self._ready: deque[asyncio.Handle] = deque()
        self._received: list[asyncio.Handle] = []
        self._overdue: list[asyncio.TimerHandle] = []
        self._countdowns: list[list[Any]] = []
        self._stops = 0

    def clock(self) -> float:
        """Boot time: goes on while it is suspended."""
        return self._hands.offset + self.rate * self.world.now

    def true(self, clock: float) -> float:
        """The true time at which `clock` shows that."""
        return (clock - self._hands.offset) / self.rate

    def time(self) -> float:
        """See `asyncio.loop.time`."""
        return self._hands.offset + self.rate * (self.world.now - self._hands.suspended)

    def get_debug(self) -> bool:
        """See asyncio."""
        return False

    def is_running(self) -> bool:
        """See asyncio."""
        return self._running

    def is_closed(self) -> bool:
        """See asyncio."""
        return False

    def create_future(self) -> asyncio.Future[Any]:
        """See asyncio."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        """See asyncio."""
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
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
        """See asyncio."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.world.at(self._true_of(when), self._fire, handle)
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """See asyncio: nobody handles this."""
        error = context.get("exception")
        self.world.on_trouble(
            f"{self.name}: {context.get('message')}: {type(error).__name__} {error}"
        )

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Of `asyncio.TimerHandle.cancel`; a cancelled timer is passed over when its time comes."""

    def receive(self, callback: Callable[..., object], *args: Any) -> None:
        """Something came from outside: handle it now, or when the process goes on."""
        handle = asyncio.Handle(callback, args, self)
        if self.stopped:
            self._received.append(handle)
        else:
            self._ready.append(handle)
            self._drain()

    def within(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call something as this process, at this very instant, whatever state it is in."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            return call(*args)
        finally:
            events._set_running_loop(before)

    def after(self, callbacks: int, call: Callable[[], None]) -> None:
        """Call once so many callbacks have run: between two of them, wherever that is."""
        self._countdowns.append([callbacks, call])

    def forget_stops(self) -> None:
        """Call nothing any more that `after` was given."""
        self._countdowns.clear()

    def stop_for(self, seconds: float, *, suspended: bool) -> None:
        """Run nothing for so many true seconds."""
        if self.stopped:
            return
        self.stopped = True
        self._stops += 1
        self.world.at(self.world.now + seconds, self.resume, self._stops, self.world.now, suspended)

    def resume(self, stop: int, since: float, suspended: bool) -> None:
        """End a stop."""
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
        """Return for how many true seconds the loop had stood still alone at that time."""
        return 0.0

    def stood_without(self, at: float, most: float) -> float:
        """Return `stood_at` with at most `most` true seconds of each stop of the whole process."""
        return 0.0

    def go_on(self) -> None:
        """Run what was ready, then what was received, then the timers that are due, as asyncio
        does.
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
        # Never early, by rounding: a real clock has moved on when a timer is looked at, this one
        # would not.
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
