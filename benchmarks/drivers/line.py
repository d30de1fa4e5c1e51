"""Let many coroutines wait for one lock in a closed loop, on any Python since 3.9.

A phase has `name`, `seconds`, `same` (the name of the lock) and `hold` (seconds). Optional keys are
`register` (a file that shows overlaps between processes), `trace` (a folder for `tracing.py`),
`open` and `grace` (seconds to wait for the first acquisition, and for the last), and `pause`
(seconds between a waiter's release and its next acquire). A hand-over is an acquisition by another
waiter than the previous holder.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from array import array
from pathlib import Path
from typing import Any

from tracing import Trace

__all__ = ["Line"]

_GRACE_SECONDS = 1.5
_OPEN_SECONDS = 5.0


class Line:
    """The waiters of one phase and their figures.

    Args:
        client: The result of the driver's `connect`. Its `acquire(key)` and `release(handle)`
            return awaitables.
        waiters: Number of coroutines.
        phase: The phase's JSON.
    """

    def __init__(self, client: Any, waiters: int, phase: dict[str, Any]) -> None:
        self.client = client
        self.phase = phase
        self.key = phase["same"]
        self.hold = phase["hold"]
        self.pause = phase.get("pause", 0.0)
        self.running = True
        self.recording = False
        self.turns = [0] * waiters
        # The time at which each waiter began to wait, 0 while it does not wait.
        self.since = [0.0] * waiters
        self.taken = 0
        self.same = 0
        self.errors = 0
        self.first_error = ""
        self.arrived = 0
        self.latest = -1
        self.overtaken = 0
        self.last = -1
        self.released = 0.0
        self.delays = array("d")
        self.waits = array("d")
        self.register: Any = None
        if phase.get("register"):
            # Only our client uses the register, and it runs where the checkout can be imported.
            from tests.support.register import Register

            self.register = Register(Path(phase["register"]))
        self.trace = Trace(phase["trace"]) if phase.get("trace") else None

    async def worker(self, index: int) -> None:
        """Acquire the lock, hold it and release it until the phase is over."""
        clock, register, trace = time.perf_counter, self.register, self.trace
        place = 0
        who = os.getpid() * 1000 + index + 1
        acquire, release, key, hold = self.client.acquire, self.client.release, self.key, self.hold
        while self.running:
            arrival = self.arrived = self.arrived + 1
            self.since[index] = asked = clock()
            try:
                handle = await acquire(key)
                got = clock()
                self.since[index] = 0.0
                if trace is not None:
                    place = trace.got()
                if register is not None:
                    register.enter(who)
                self.took(index, arrival, asked, got)
                if hold:
                    await asyncio.sleep(hold)
                if register is not None:
                    register.leave(who)
                self.released = clock()
                if trace is not None:
                    trace.leaves(place)
                await release(handle)
                if self.pause:
                    await asyncio.sleep(self.pause)
            except Exception as error:
                # A call may begin inside the window and fail after its end.
                if self.recording or not self.running:
                    self.errors += 1
                self.first_error = self.first_error or f"{type(error).__name__}: {error}"[:300]
                await asyncio.sleep(0)

    def took(self, index: int, arrival: int, asked: float, got: float) -> None:
        """Record one acquisition."""
        self.taken += 1
        if arrival < self.latest:
            self.overtaken += self.recording
        self.latest = arrival
        if self.recording:
            self.turns[index] += 1
            self.waits.append(got - asked)
            if index == self.last:
                self.same += 1
            elif self.released:
                self.delays.append(got - self.released)
        self.last = index

    async def run(self) -> dict[str, Any]:
        """Run the phase.

        Returns:
            Its figures, times in seconds.
        """
        tasks = [asyncio.ensure_future(self.worker(index)) for index in range(len(self.turns))]
        begun, open_seconds = time.perf_counter(), self.phase.get("open", _OPEN_SECONDS)
        # An event would have to be set at each acquisition.
        while not self.taken and time.perf_counter() - begun < open_seconds:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await asyncio.sleep(self.phase.get("warmup", 0.3))
        opened, cpu = time.perf_counter(), _cpu_seconds()
        self.recording = True
        self.opens()
        await asyncio.sleep(self.phase["seconds"])
        self.recording = self.running = False
        self.closes()
        closed = time.perf_counter()
        seconds, cpu = closed - opened, _cpu_seconds() - cpu
        # A waiter that is not served would otherwise be missing from the figures.
        waiting = max((closed - since for since in self.since if since), default=0.0)
        _, stuck = await asyncio.wait(tasks, timeout=self.phase.get("grace", _GRACE_SECONDS))
        for task in stuck:
            task.cancel()
        if stuck:
            await asyncio.wait(stuck, timeout=_GRACE_SECONDS)
        taken = sum(self.turns)
        return {
            "phase": self.phase["name"],
            "seconds": seconds,
            "cpu_seconds": cpu,
            "acquired": taken,
            "handovers_per_second": (taken - self.same) / seconds,
            "acquired_in_all": self.taken,
            "turns_least": min(self.turns),
            "turns_most": max(self.turns),
            "overtaken": self.overtaken,
            "overlaps": self.register.overlaps if self.register is not None else None,
            "errors": self.errors,
            "first_error": self.first_error,
            "stuck": len(stuck),
            "delay": _summary(self.delays),
            "wait": _summary(self.waits),
            "waiting": waiting,
        }

    def opens(self) -> None:
        """Hook that runs when the window opens."""

    def closes(self) -> None:
        """Hook that runs when the window closes."""


def _summary(values: array[float]) -> dict[str, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    last = len(ordered) - 1
    return {"p50": ordered[last // 2], "p99": ordered[int(last * 0.99)], "max": ordered[last]}


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
