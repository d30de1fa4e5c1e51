"""An event loop whose clock jumps to the next timer, so that an hour of sleeps takes no time."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

__all__ = ["Deadlock", "VirtualLoop"]

# A thread that the test started may wake the loop at any moment. So the loop reports a deadlock
# only after this many seconds without an event.
_GRACE = 1.0

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Deadlock(RuntimeError):
    """Every task waits, and no timer is set, so no task can ever run again.

    The message lists the tasks, and the lines at which they wait.
    """


class VirtualLoop(asyncio.SelectorEventLoop):
    """Virtual time starts at 1000.0 and passes only while nothing can run."""

    def __init__(self) -> None:
        # Number of calls that run in threads. The end of a call takes real time, so the clock
        # stands still until then.
        self.threads = 0
        # With 0.0 as the first time, tests would not notice code that takes 0.0 for "no time".
        self._now = 1000.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass at once, as if the process had been stopped. Timers run late."""
        self._now += seconds

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run `func` in a thread, while the clock stands still."""
        future = super().run_in_executor(executor, func, *args)
        self.threads += 1
        future.add_done_callback(self._thread_done)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the threads, while the clock stands still."""
        self.threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self.threads -= 1

    def _thread_done(self, _: object) -> None:
        self.threads -= 1


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            ready = super().select(_GRACE)
            if not ready:
                raise Deadlock(_who_waits(self._loop))
            return ready
        ready = super().select(min(timeout, _GRACE) if self._loop.threads else 0)
        if not ready and timeout > 0:
            self._loop.advance(timeout)
        return ready


def _who_waits(loop: VirtualLoop) -> str:
    waiting = []
    for task in sorted(asyncio.all_tasks(loop), key=asyncio.Task.get_name):
        frames = task.get_stack()
        where = (
            f"{frames[-1].f_code.co_qualname}, line {frames[-1].f_lineno}"
            if frames
            else "not started"
        )
        waiting.append(f"  {task.get_name()} in {where}")
    return "\n".join(
        [
            f"at {loop.time():.3f} no callback is ready and no timer is set; waiting:",
            *waiting,
        ]
    )
