"""Let a thousand tasks wait for a lock that another process holds.

The waiting process prints its memory per waiter. Both processes end after a line on stdin.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import tracemalloc
from pathlib import Path
from typing import Any

from aioredlock_ng import Redlock


def main() -> None:
    """Hold the lock, or wait for it with many tasks."""
    task = json.loads(sys.argv[1])
    asyncio.run(_hold(task) if task["holds"] else _wait(task))


async def _hold(task: dict[str, Any]) -> None:
    async with Redlock(task["urls"], ttl=task["ttl"]) as redlock, redlock.lock(task["same"]):
        _say({"ready": True})
        await _told()
    _say({"released": True})


async def _wait(task: dict[str, Any]) -> None:
    async with Redlock(task["urls"], ttl=task["ttl"]) as redlock:
        lock = redlock.lock(task["same"])
        served = 0

        async def wait() -> None:
            nonlocal served
            async with lock:
                served += 1

        # The first waiter creates everything that is created only once, and asks the nodes.
        first = asyncio.create_task(wait())
        await asyncio.sleep(0.3)
        gc.collect()
        resident = _resident_bytes()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        crowd = [asyncio.create_task(wait()) for _ in range(task["waiters"])]
        await asyncio.sleep(0.3)
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        resident = _resident_bytes() - resident
        waiting = redlock.stats().waiting
        _say(
            {"ready": True, "waiting": waiting, "traced_bytes": traced, "resident_bytes": resident}
        )
        await _told()
        attempts = redlock.stats().attempts
        await asyncio.wait_for(asyncio.gather(first, *crowd), 30)
        _say({"served": served, "attempts": attempts})


async def _told() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _resident_bytes() -> int:
    statm = Path("/proc/self/statm")
    return (
        int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if statm.exists()
        else 0
    )


if __name__ == "__main__":
    main()
