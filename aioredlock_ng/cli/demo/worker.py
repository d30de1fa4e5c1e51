"""Run one worker process, whose coroutines read a counter, wait, and write the next number.

The process is started as `python -m aioredlock_ng.cli.demo.worker`. A worker reads its messages
from standard input, reports on standard output, and ends when standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from aioredlock_ng import LockLost, LockNotAcquired, Redlock

from .counters import Counters
from .messages import (
    Begin,
    Drained,
    End,
    Hold,
    Kept,
    Lost,
    Message,
    Progress,
    Ready,
    Refused,
    Rival,
    Setup,
    Taken,
    decode,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Worker", "main"]

# The pause between read and write stands for a request that real code sends to another service.
_WORK_SECONDS = 0.001
# Mean pause between two increments of a coroutine, in phases with locks. Without the pause, the
# workers would wait for a CPU, and the demo would not measure the lock.
_THINK_SECONDS = 0.01
_RIVAL_PAUSE_SECONDS = 0.04
_REPORT_SECONDS = 0.1
# Longest wait of a worker for a lock. This wait is longer than the holder's work, and shorter than
# the demo's wait for the end of a phase.
_PATIENCE_SECONDS = 5.0
# Longest wait of the holder for its lock. The holder waits longer than a worker, because the demo
# fails if the holder does not get its lock. On a busy machine a single increment can take seconds.
_HOLDER_PATIENCE_SECONDS = 30.0
_CLOSING_SECONDS = 1.0


class Worker:
    """The coroutines of one process, and their work since the last report.

    The caller must have opened the manager `redlock`. The coroutines run in `tasks`, so an
    unexpected error in one coroutine ends the process.
    """

    def __init__(
        self,
        setup: Setup,
        redlock: Redlock,
        counters: Counters,
        tasks: asyncio.TaskGroup,
        send: Callable[[Message], None],
    ) -> None:
        self._setup = setup
        self._redlock = redlock
        self._counters = counters
        self._tasks = tasks
        self._send = send
        self._random = random.Random()  # noqa: S311 - only spreads load
        self._running: set[asyncio.Task[None]] = set()
        self._phase = 0
        self._draining = False
        self._clear()

    async def obey(self, message: Message) -> None:
        """Execute a message. For `End`, also wait until the increments in progress have ended."""
        match message:
            case Begin(phase, locked):
                self._phase, self._draining = phase, False
                for _ in range(self._setup.coroutines):
                    self._start(self._repeat(locked))
                self._start(self._report())
            case Rival(counter, ttl):
                self._start(self._compete(counter, ttl))
            case Hold(counter, ttl, seconds):
                self._start(self._hold(counter, ttl, seconds))
            case End():
                await self._drain()
                self._tell()
                self._send(Drained(self._phase))
            case _:
                raise ValueError(f"{type(message).__name__} is not for a worker")

    async def close(self) -> None:
        """End the coroutines. A coroutine that still runs after a second is cancelled."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self._drain()
        for task in self._running:
            task.cancel()

    def _start(self, work: asyncio._CoroutineLike[None]) -> None:
        task = self._tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _drain(self) -> None:
        self._draining = True
        if self._running:
            await asyncio.wait(self._running)

    async def _repeat(self, locked: bool) -> None:
        while not self._draining:
            counter = self._random.randrange(self._setup.count - 1)
            if locked:
                await self._increment(counter, self._setup.ttl)
                await asyncio.sleep(self._random.uniform(0, 2 * _THINK_SECONDS))
            else:
                value = self._counters.read(counter)
                await asyncio.sleep(_WORK_SECONDS)
                self._counters.write(counter, value + 1)
                self._acknowledged += 1

    async def _increment(self, counter: int, ttl: float, *, timed: bool = True) -> None:
        asked = time.perf_counter()
        wrote = False
        try:
            async with self._redlock.lock(
                self._name(counter), ttl=ttl, blocking_timeout=_PATIENCE_SECONDS
            ) as lease:
                if timed:
                    self._waits_us.append(round((time.perf_counter() - asked) * 1e6))
                value = self._counters.read(counter)
                await asyncio.sleep(_WORK_SECONDS)
                lease.check()
                self._counters.write(counter, value + 1)
                wrote = True
        except LockLost:
            self._leases_lost += 1
            self._in_doubt += wrote
        except LockNotAcquired:
            self._refused += 1
        else:
            self._acknowledged += 1

    async def _compete(self, counter: int, ttl: float) -> None:
        while not self._draining:
            # A rival waits mostly for the holder's work. This wait is not recorded, because it says
            # nothing about the speed of the lock.
            await self._increment(counter, ttl, timed=False)
            await asyncio.sleep(_RIVAL_PAUSE_SECONDS)

    async def _hold(self, counter: int, ttl: float, seconds: float) -> None:
        cancelled_at: float | None = None
        try:
            async with self._redlock.lock(
                self._name(counter), ttl=ttl, blocking_timeout=_HOLDER_PATIENCE_SECONDS
            ):
                value = self._counters.read(counter)
                self._send(Taken(value))
                try:
                    await asyncio.sleep(seconds)
                except asyncio.CancelledError:
                    cancelled_at = time.monotonic()
                    raise
                # The holder calls no check() before its write. If the body is not cancelled, its
                # stale write destroys every increment made meanwhile.
                self._counters.write(counter, value + 1)
        except LockLost:
            self._send(Lost(cancelled_at or time.monotonic(), cancelled_at is not None))
        except LockNotAcquired as error:
            self._send(Refused(str(error)))
        else:
            self._send(Kept())

    async def _report(self) -> None:
        while not self._draining:
            await asyncio.sleep(_REPORT_SECONDS)
            self._tell()

    def _tell(self) -> None:
        self._send(
            Progress(
                self._phase,
                self._acknowledged,
                self._in_doubt,
                self._refused,
                self._leases_lost,
                self._waits_us,
            )
        )
        self._clear()

    def _clear(self) -> None:
        self._acknowledged = self._in_doubt = self._refused = self._leases_lost = 0
        self._waits_us: list[int] = []

    def _name(self, counter: int) -> str:
        return f"{self._setup.prefix}:counter:{counter}"


async def _serve() -> None:
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    setup = decode(await commands.readline())
    if not isinstance(setup, Setup):
        raise ValueError("the first message must be Setup")
    with Counters(Path(setup.counters), setup.count) as counters:
        async with (
            Redlock(setup.nodes, ttl=setup.ttl, max_ttl=setup.ttl) as redlock,
            asyncio.TaskGroup() as tasks,
        ):
            worker = Worker(setup, redlock, counters, tasks, _send)
            _send(Ready())
            while line := await commands.readline():
                await worker.obey(decode(line))
            await worker.close()


def _send(message: Message) -> None:
    sys.stdout.buffer.write(encode(message))
    sys.stdout.buffer.flush()


def _die_with_parent() -> None:
    # A frozen process does not notice the end of standard input. So on Linux the kernel
    # kills this process when its parent dies.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def main() -> None:
    """Run one worker process until its standard input ends."""
    # Ctrl-C reaches the whole process group. Ignore the signal, because the parent process ends
    # this process in an orderly way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    try:
        asyncio.run(_serve())
    except* BrokenPipeError:
        # The parent process is gone, so nobody reads the reports.
        os._exit(1)


if __name__ == "__main__":
    main()
