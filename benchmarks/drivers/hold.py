"""Hold thousands of leases and measure the cost of their renewal, with the stdlib only.

The task has `urls`, `leases`, `ttl`, `settle`, `seconds` and `probe_seconds`. The driver prints one
JSON line when all leases are held. After a line on stdin it prints the CPU time of the process in a
window without a probe. After another line it prints the stalls of the event loop in a second
window. In this window a timer of one millisecond measures the stalls.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["main"]

_TICK_SECONDS = 0.001
_CLOSE_SECONDS = 10.0


class _Probe:
    """Record by how much a timer is late.

    `busy` is the most CPU time that this thread used between two ticks.
    """

    def __init__(self) -> None:
        self.stalls: list[float] = []
        self.busy = 0.0
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._tick(0.0, time.thread_time())

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _tick(self, due: float, used: float) -> None:
        now, used_now = self._loop.time(), time.thread_time()
        if due:
            self.stalls.append(now - due)
            self.busy = max(self.busy, used_now - used)
        due = now + _TICK_SECONDS
        self._handle = self._loop.call_at(due, self._tick, due, used_now)


def main(connect: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
    """Run a driver: connect, hold, measure, print, end.

    Args:
        connect: Given the task, returns a client with `hold(count)`, `valid()`, `lost()` (the
            number of lost leases by reason), `close()` and `versions`.
    """
    asyncio.run(_drive(connect, json.loads(sys.argv[1])))
    sys.stdout.flush()
    os._exit(0)


async def _drive(connect: Callable[[dict[str, Any]], Awaitable[Any]], task: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    client = await connect(task)
    started = time.perf_counter()
    await client.hold(task["leases"])
    took = time.perf_counter() - started
    _say(
        {
            "ready": True,
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "versions": client.versions,
            "took": took,
        }
    )

    if not await loop.run_in_executor(None, sys.stdin.readline):
        # The parent process is gone.
        return
    await asyncio.sleep(task["settle"])
    started, cpu = time.perf_counter(), _cpu_seconds()
    await asyncio.sleep(task["seconds"])
    seconds, cpu = time.perf_counter() - started, _cpu_seconds() - cpu
    _say(
        {
            "seconds": seconds,
            "cpu_seconds": cpu,
            "cpu_share": cpu / seconds,
            "valid": client.valid(),
        }
    )

    if not await loop.run_in_executor(None, sys.stdin.readline):
        # The parent process is gone.
        return
    probe = _Probe()
    await asyncio.sleep(task["probe_seconds"])
    probe.stop()
    ordered = sorted(probe.stalls)
    _say(
        {
            "longest_stall": ordered[-1],
            "stall_p99": ordered[int(len(ordered) * 0.99)],
            "longest_busy": probe.busy,
            "valid": client.valid(),
            "lost": client.lost(),
        }
    )
    await asyncio.wait([asyncio.ensure_future(client.close())], timeout=_CLOSE_SECONDS)


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
