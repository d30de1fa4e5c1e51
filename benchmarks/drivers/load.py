"""Drive every client with the same closed loop, with the stdlib only, on any Python since 3.9.

A driver is a process. It reads its task as JSON from `argv[1]`, with `urls`, `coroutines`, `phases`
and `ttl`. A phase has `name` and `seconds`. With `record: false` the loop only counts cycles, so
that its lists do not grow. `warm: false` opens the window at once. `servers` are the URLs of the
servers whose CPU time counts. A phase with `same` is a waiting line on one name, and belongs to
`line.py`.

The driver prints one JSON line when it is connected. It waits for a line on stdin before each
phase, and prints one JSON line after the phase. So the parent process can hang or kill a node
between two phases.

In a phase every coroutine acquires and releases a lock of its own name in a loop. With `every`
(seconds) all coroutines begin a cycle at the same time, once in this interval. So clients of
different speed do the same work.

A figure counts the cycles that end inside the window. Errors count from the opening of the window
until the last cycle ends. The window opens when every coroutine has done its first cycle, so no
figure contains the connecting. The coroutines run until the window has closed, so no figure
contains idle time at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import sys
import time
from array import array
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from line import Line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["main"]

# A client that takes longer is stuck in its first cycle.
_FIRST_CYCLE_SECONDS = 20.0
# A cycle counts as stuck if it takes longer than this after the window has closed.
_GRACE_SECONDS = 1.5
_CLOSE_SECONDS = 3.0
_INFO_SECONDS = 10.0


class Loop:
    """The coroutines of one phase and their figures.

    Args:
        client: The result of the driver's `connect`. Its `acquire(key)` and `release(handle)`
            return awaitables.
        keys: One name per coroutine.
        phase: The phase's JSON.
    """

    def __init__(self, client: Any, keys: list[str], phase: dict[str, Any]) -> None:
        self.client = client
        self.keys = keys
        self.phase = phase
        self.running = True
        self.recording = False
        self.keep = bool(phase.get("record", True))
        self.cycles = array("d")
        self.acquires = array("d")
        self.done = 0
        self.errors = 0
        self.first_error = ""
        self.begun = 0
        self.all_begun = asyncio.Event()
        self.since = [0.0] * len(keys)
        self.every: float = phase.get("every") or 0.0
        self.beat = asyncio.get_running_loop().create_future()

    async def worker(self, index: int) -> None:
        """Acquire and release one lock until the phase is over."""
        clock = time.perf_counter
        acquire, release, key = self.client.acquire, self.client.release, self.keys[index]
        first = True
        while self.running:
            self.since[index] = started = clock()
            try:
                handle = await acquire(key)
                acquired = clock()
                await release(handle)
            except Exception as error:
                # A call may begin inside the window and fail after its end.
                if self.recording or not self.running:
                    self.errors += 1
                self.first_error = self.first_error or f"{type(error).__name__}: {error}"[:300]
                await asyncio.sleep(0)
            else:
                if self.recording:
                    self.done += 1
                    if self.keep:
                        self.cycles.append(clock() - started)
                        self.acquires.append(acquired - started)
            if first:
                first = False
                self.begun += 1
                if self.begun == len(self.keys):
                    self.all_begun.set()
            if self.every:
                await self.beat

    def go_on(self, now: float) -> None:
        """Let all coroutines begin a cycle, and schedule the next one after `every` seconds."""
        loop = asyncio.get_running_loop()
        beat, self.beat = self.beat, loop.create_future()
        beat.set_result(None)
        if self.running:
            loop.call_at(now + self.every, self.go_on, now + self.every)

    async def run(self) -> dict[str, Any]:
        """Run the phase.

        Returns:
            Its figures, times in seconds.
        """
        tasks = [asyncio.ensure_future(self.worker(index)) for index in range(len(self.keys))]
        if self.every:
            self.go_on(asyncio.get_running_loop().time())
        if self.phase.get("warm", True):
            await asyncio.wait(
                [asyncio.ensure_future(self.all_begun.wait())], timeout=_FIRST_CYCLE_SECONDS
            )
            await asyncio.sleep(self.phase.get("warmup", 0.2))
        servers = self.phase.get("servers") or []
        server_cpu = sum(map(_server_cpu_seconds, servers))
        opened, cpu = time.perf_counter(), _cpu_seconds()
        self.recording = True
        await asyncio.sleep(self.phase["seconds"])
        self.recording = self.running = False
        seconds, cpu = time.perf_counter() - opened, _cpu_seconds() - cpu
        server_cpu = sum(map(_server_cpu_seconds, servers)) - server_cpu
        _, stuck = await asyncio.wait(tasks, timeout=_GRACE_SECONDS)
        longest = max(
            (time.perf_counter() - self.since[tasks.index(task)] for task in stuck), default=0.0
        )
        for task in stuck:
            task.cancel()
        if stuck:
            await asyncio.wait(stuck, timeout=_GRACE_SECONDS)
        return {
            "phase": self.phase["name"],
            "seconds": seconds,
            "cpu_seconds": cpu,
            "server_cpu_seconds": server_cpu if servers else None,
            "cycles": self.done,
            "per_second": self.done / seconds,
            "errors": self.errors,
            "first_error": self.first_error,
            "stuck": len(stuck),
            "stuck_seconds": longest,
            "cycle": _summary(self.cycles),
            "acquire": _summary(self.acquires),
        }


def main(connect: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
    """Run a driver: connect, run the phases of the task, print, end.

    Args:
        connect: Given the task, returns the client. The client has its connections, if it makes
            them beforehand.
    """
    asyncio.run(_drive(connect, json.loads(sys.argv[1])))
    sys.stdout.flush()
    # A client may hang in its clean-up because of a dead node. It must not keep the process alive.
    os._exit(0)


async def _drive(connect: Callable[[dict[str, Any]], Awaitable[Any]], task: dict[str, Any]) -> None:
    client = await connect(task)
    _say(
        {
            "ready": True,
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "versions": client.versions,
        }
    )
    keys = [f"{task.get('prefix', 'bench')}:{index}" for index in range(task["coroutines"])]
    loop = asyncio.get_running_loop()
    for phase in task["phases"]:
        if not await loop.run_in_executor(None, sys.stdin.readline):
            # The parent process is gone.
            return
        loop_of_phase: Any = (
            Line(client, len(keys), phase) if "same" in phase else Loop(client, keys, phase)
        )
        _say(await loop_of_phase.run())
    await asyncio.wait([asyncio.ensure_future(client.close())], timeout=_CLOSE_SECONDS)


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _summary(values: array[float]) -> dict[str, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        "p50": ordered[last // 2],
        "p99": ordered[int(last * 0.99)],
        "max": ordered[last],
        "mean": sum(ordered) / len(ordered),
    }


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _server_cpu_seconds(url: str) -> float:
    """Return the CPU time of a server.

    The call blocks the event loop, so that no cycle runs meanwhile.
    """
    parts = urlsplit(url)
    with socket.create_connection(
        (parts.hostname or "127.0.0.1", parts.port or 6379), _INFO_SECONDS
    ) as connection:
        connection.sendall(b"INFO cpu\r\n")
        with connection.makefile("rb") as lines:
            text = lines.read(int(lines.readline()[1:]))
    told = dict(line.split(":") for line in text.decode().split() if ":" in line)
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])
