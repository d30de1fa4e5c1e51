"""Event loops of processes with `thread=True`: one loop for the engine, and others for its callers.

A caller is a task that uses the manager. All loops share the clock of their process. A loop of
callers may stand still alone. Mailboxes, calls and leases are real. Only the thread of the
operating system is replaced.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Any

from aioredlock_ng._threaded import engine_thread
from aioredlock_ng._threaded.calls import Call
from aioredlock_ng._threaded.latch import Latch
from aioredlock_ng._threaded.mailbox import Mailbox
from tests.simulation.ordered import OrderedSet
from tests.simulation.world import ProcessLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.simulation.world import World

__all__ = ["CallersLoop", "MailboxOfLoop", "SimThread", "ThreadLoop"]

USUAL_WAKE = 0.00003
"""Mean time until a loop runs that another thread has woken, in seconds."""

SWITCH_INTERVAL = 0.005
"""Seconds for which another thread may keep the interpreter lock (`sys.getswitchinterval`)."""

ROUNDING = 1e-6
"""Largest difference in seconds between a time and the same time converted to a clock and back."""

LATE_WAKES = 0.03
"""Share of the wake-ups that wait for the interpreter lock."""


class ThreadLoop(ProcessLoop):
    """The event loop of one thread. The loop of another thread may wake it, which takes a moment.

    A method without a docstring does the same as in `asyncio.AbstractEventLoop` or `ProcessLoop`.

    Attributes:
        mailbox: The mailbox that `mailbox.home` returns on this loop.
        stops: True times at which the loop began to stand still and ran again, in order.
    """

    def __init__(self, world: World, name: str, rate: float = 1.0) -> None:
        super().__init__(world, name, rate)
        self.mailbox: Mailbox | None = None
        self._wakes: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._delays = world.rng(f"{name} wakes")
        self._closed = False
        self.stops: list[tuple[float, float]] = []

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close the loop, so that no callback runs any more."""
        self._closed = True
        self._ready.clear()

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: object = None
    ) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        draw = self._delays
        delay = (
            draw.random() * SWITCH_INTERVAL
            if draw.random() < LATE_WAKES
            else draw.expovariate(1 / USUAL_WAKE)
        )
        self._wakes.append((callback, args))
        self.world.at(self.world.now + delay, self._woken)

    def stop_for(self, seconds: float, *, suspended: bool) -> None:
        if not self.stopped:
            self.stops.append((self.world.now, math.inf))
        super().stop_for(seconds, suspended=suspended)

    def go_on(self) -> None:
        if self.stopped and self.stops:
            self.stops[-1] = self.stops[-1][0], self.world.now
        super().go_on()

    def catch_up(self) -> None:
        """Run all callbacks that are ready, while a callback of another loop blocks its own thread.

        Wake-ups from other threads count as ready at once.
        """
        caller, task = asyncio.get_running_loop(), asyncio.current_task()
        # Without this, a stop between two of these callbacks would stop the waiting callback in its
        # middle.
        countdowns, self._countdowns = self._countdowns, []
        if task is not None:
            asyncio.tasks._leave_task(caller, task)
        try:
            # After a stop of the process, the caller's thread may have been the first to run.
            if self.stopped:
                self.resume(self._stops, self.stops[-1][0], False)
            while self._wakes:
                self._woken()
        finally:
            if task is not None:
                asyncio.tasks._enter_task(caller, task)
            self._countdowns = countdowns

    def _woken(self) -> None:
        if self._wakes:
            callback, args = self._wakes.popleft()
            self.receive(callback, *args)

    def _drain(self) -> None:
        if self._closed:
            self._ready.clear()
        else:
            super()._drain()


class CallersLoop(ThreadLoop):
    """A loop of tasks, in a process whose engine has another loop.

    Both loops have the same clock. This loop can also stop alone.
    """

    def __init__(self, engine: ThreadLoop, number: int = 0) -> None:
        super().__init__(engine.world, f"{engine.name}.callers{number or ''}", engine.rate)
        self._engine = engine
        self._hands = engine._hands
        self._until = self._stopped_since = 0.0

    def stop_for(self, seconds: float, *, suspended: bool = False) -> None:
        """Stop this loop for so many true seconds, or for longer if another stop lasts longer."""
        now = self.world.now
        if not self.stopped:
            self.stopped = True
            self._stopped_since = self.time()
            self.stops.append((now, math.inf))
        if now + seconds > self._until:
            self._until = now + seconds
            self.world.at(self._until, self._over, self._until)

    def stood_at(self, at: float, *, together: bool = False) -> float:
        """Return for how many true seconds the loop had stood still at `at`. 0.0 if it ran.

        Args:
            at: True time.
            together: True to count two stops as one if the second began at the instant at which the
                first ended. In between, the loop may not have read its mailbox.
        """
        since = at
        for begin, end in reversed(self.stops):
            # The caller may have computed `at` back from the clock of the process, with a rounding
            # error.
            if begin <= since <= end + ROUNDING and (together or since == at):
                since = begin
        return at - since

    def stood_without(self, at: float, most: float) -> float:
        """Return `stood_at` with at most `most` true seconds of each stop of the whole process."""
        since = at - self.stood_at(at, together=True)
        stops = [min(end, at) - max(begin, since) for begin, end in self._engine.stops]
        return at - since - sum(max(0.0, stop - most) for stop in stops)

    def _over(self, until: float) -> None:
        if not self.stopped or until != self._until:
            return
        self.resumed_at = self.world.now
        self.stood += self.time() - self._stopped_since
        self.was_suspended = self._engine.was_suspended
        self.go_on()


class SimThread(engine_thread.EngineThread):
    """Takes the place of the engine's thread, and serves calls on the engine's loop of the same
    process.
    """

    def __init__(self) -> None:
        caller: Any = asyncio.get_running_loop()
        self._loop: ThreadLoop = caller.process.loop
        self._inbox = Mailbox(self._loop)
        self.pending: Any = OrderedSet()
        self._last = None
        self.dead = ""
        self.ended: Latch[None] = Latch()
        self.last_act = None

    @property
    def here(self) -> bool:
        """True if the running code is a callback of the engine's loop."""
        return asyncio._get_running_loop() is self._loop

    def run(
        self,
        make: Callable[[], Coroutine[Any, Any, Any]],
        undo: Any = None,
        *,
        accept: object = None,
        to_end: bool = False,
    ) -> Any:
        """Run a coroutine that does not wait, and return its result. No time passes meanwhile."""
        self.refuse_here()
        outcome: Latch[Any] = Latch()
        self._begin(Call(self._loop, make, undo, outcome))
        self._loop.catch_up()
        assert outcome.done(), "a blocking call must not wait here"
        return outcome.result()

    def launch(self) -> None:
        """Do nothing, because the loop runs already."""

    def _end(self, last: asyncio.Task[object]) -> None:
        assert last.cancelled() or last.exception() is None
        self.dead = engine_thread._CLOSED
        for call in list(self.pending):
            call.outcome.set_exception(self.closed())
        # The set of all tasks has another order in each run.
        left = sorted(
            asyncio.all_tasks(self._loop), key=lambda task: (len(task.get_name()), task.get_name())
        )
        for task in left:
            task.cancel()
        self._closing = self._loop.create_task(self._close(left))

    async def _close(self, left: list[asyncio.Task[Any]]) -> None:
        if left:
            await asyncio.wait(left, timeout=engine_thread.UNDONE_WITHIN)
        self._loop.close()
        self.ended.set_result(None)


class MailboxOfLoop:
    """Takes the place of `mailbox._here`.

    Each simulated loop stands for a thread of its own, so each loop has its own mailbox.
    """

    @property
    def mailbox(self) -> Mailbox | None:
        """The mailbox of the running loop."""
        return _running().mailbox

    @mailbox.setter
    def mailbox(self, mailbox: Mailbox) -> None:
        _running().mailbox = mailbox


def _running() -> ThreadLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ThreadLoop)
    return loop
