"""Drive every client with blocking calls in the same loop, on any Python since 3.9.

A driver is a process, and reads and prints the same lines as the drivers of `load.py`. Its task has
`urls`, `coroutines` (here the number of threads), `phases` and `ttl`. A phase has a `name` and
`seconds`. In a phase every thread acquires and releases a lock of its own name in a loop. The
window opens after every thread has done its first cycle. Cycles that end inside the window are
counted.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]

# A thread that takes longer is stuck in its first cycle, or in its last one.
_FIRST_CYCLE_SECONDS = 20.0
_GRACE_SECONDS = 3.0
_WARM_UP_SECONDS = 0.2


class Phase:
    """The threads of one phase and their figures.

    Args:
        client: The result of the driver's `connect`, with the blocking methods `acquire(key)` and
            `release(handle)`.
        keys: One name per thread.
        phase: The phase's JSON.
    """

    def __init__(self, client: Any, keys: list[str], phase: dict[str, Any]) -> None:
        self._client = client
        self._phase = phase
        self._running = True
        self._recording = False
        self._all_begun = threading.Barrier(len(keys) + 1)
        self._threads = [
            threading.Thread(target=self._work, args=at, daemon=True) for at in enumerate(keys)
        ]
        self._cycles = [array("d") for _ in keys]
        self._errors: list[str] = []

    def _work(self, index: int, key: str) -> None:
        clock, acquire, release = time.perf_counter, self._client.acquire, self._client.release
        cycles = self._cycles[index]
        release(acquire(key))
        self._all_begun.wait(_FIRST_CYCLE_SECONDS)
        while self._running:
            started = clock()
            try:
                release(acquire(key))
            except Exception as error:
                self._errors.append(f"{type(error).__name__}: {error}"[:300])
            else:
                if self._recording:
                    cycles.append(clock() - started)

    def run(self) -> dict[str, Any]:
        """Run the phase.

        Returns:
            Its figures, times in seconds. `least` is the number of cycles of the slowest thread.
        """
        for thread in self._threads:
            thread.start()
        self._all_begun.wait(_FIRST_CYCLE_SECONDS)
        time.sleep(_WARM_UP_SECONDS)
        opened, cpu = time.perf_counter(), _cpu_seconds()
        self._recording = True
        time.sleep(self._phase["seconds"])
        self._recording = self._running = False
        seconds, cpu = time.perf_counter() - opened, _cpu_seconds() - cpu
        end = time.perf_counter() + _GRACE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.perf_counter()))
        counts = [len(cycles) for cycles in self._cycles]
        ordered = sorted(cycle for cycles in self._cycles for cycle in cycles)
        return {
            "phase": self._phase["name"],
            "seconds": seconds,
            "cpu_seconds": cpu,
            "cycles": len(ordered),
            "per_second": len(ordered) / seconds,
            "least": min(counts),
            "errors": len(self._errors),
            "first_error": self._errors[0] if self._errors else "",
            "stuck": sum(thread.is_alive() for thread in self._threads),
            "cycle": {"p50": ordered[len(ordered) // 2], "p99": ordered[int(len(ordered) * 0.99)]}
            if ordered
            else None,
        }


def main(connect: Callable[[dict[str, Any]], Any]) -> None:
    """Run a driver: connect, run the phases of the task, print, end.

    Args:
        connect: Given the task, returns the client. The client has its connections, if it makes
            them beforehand.
    """
    task = json.loads(sys.argv[1])
    client = connect(task)
    _say(
        {
            "ready": True,
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "versions": client.versions,
        }
    )
    keys = [f"threads:{os.getpid()}:{index}" for index in range(task["coroutines"])]
    for phase in task["phases"]:
        if not sys.stdin.readline():
            return
        _say(Phase(client, keys, phase).run())
    sys.stdout.flush()
    # A stuck thread must not keep the process alive.
    os._exit(0)


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
