"""Run readers and writers of one lock in one process.

The driver prints the number of entries of each task, the waits of the writers and the longest
holds of the readers.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from aioredlock_ng import Redlock

if TYPE_CHECKING:
    from aioredlock_ng.rwlock import RWLock

_WARM_UP = 0.5
"""Seconds before the window, in which all processes connect and begin."""


def main() -> None:
    """Run the driver."""
    asyncio.run(_run(json.loads(sys.argv[1])))


async def _run(task: dict[str, Any]) -> None:
    async with Redlock(task["urls"], ttl=10.0) as redlock:
        lock = redlock.rwlock("catalog")
        async with lock.read():
            pass
        _say({"ready": True})
        await asyncio.to_thread(sys.stdin.readline)
        begins = time.monotonic() + _WARM_UP
        ends = begins + task["seconds"]
        if task.get("held"):
            async with lock.read():
                reads = await asyncio.gather(
                    *(_repeat(lock, "read", 0.0, begins, ends) for _ in range(task["readers"]))
                )
            _say(
                {
                    "reads": [entries for entries, _, _ in reads],
                    "writes": [],
                    "waits": [],
                    "longest": [0.0],
                }
            )
            return
        sides = [("read", task["hold"], 0.0)] * task["readers"] + [
            ("write", task["hold"], task["every"])
        ] * task["writers"]
        found = await asyncio.gather(
            *(_repeat(lock, side, hold, begins, ends, every) for side, hold, every in sides)
        )
        read, written = found[: task["readers"]], found[task["readers"] :]
        _say(
            {
                "reads": [entries for entries, _, _ in read],
                "writes": [entries for entries, _, _ in written],
                "waits": [wait for _, waits, _ in written for wait in waits],
                "longest": [longest for _, _, longest in read],
            }
        )


async def _repeat(
    lock: RWLock, side: str, hold: float, begins: float, ends: float, every: float = 0.0
) -> tuple[int, list[float], float]:
    """Enter again and again.

    Return the number of entries inside the window, the waits, and the longest hold. An unfinished
    wait at the end of the window counts as a wait, but not as an entry.
    """
    count, waits, longest = 0, list[float](), 0.0
    half = lock.read() if side == "read" else lock.write()
    while (called := time.monotonic()) < ends:
        async with half:
            entered = time.monotonic()
            if hold:
                await asyncio.sleep(hold)
            held = time.monotonic() - entered
        if begins <= entered:
            waits.append(min(entered, ends) - called)
        if begins <= entered < ends:
            count += 1
            longest = max(longest, held)
        if every:
            await asyncio.sleep(max(0.0, called + every - time.monotonic()))
    return count, waits, longest


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
