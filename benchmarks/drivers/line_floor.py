"""Drive the floor client behind a queue in its own process.

The release of one waiter and the acquire of the next leave in one write, as in the library. This is
the lowest possible cost of a hand-over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import drive_floor
import load

from benchmarks.floor import Floor

Grant = tuple[str, str]


class Client(drive_floor.Client):
    """A queue for one name, in the order of arrival."""

    def __init__(self, floor: Floor, ttl: float) -> None:
        super().__init__(floor, ttl)
        self._taken = False
        self._queue: deque[asyncio.Future[Grant]] = deque()

    def acquire(self, key: str) -> asyncio.Future[Grant]:
        if not self._taken:
            self._taken = True
            return super().acquire(key)
        self._queue.append(future := asyncio.get_running_loop().create_future())
        return future

    def release(self, grant: Grant) -> asyncio.Future[Grant]:
        released = super().release(grant)
        if self._queue:
            self._floor.acquire(grant[0], self._ttl_ms, self._queue.popleft())
        else:
            self._taken = False
        return released


async def connect(task: dict[str, Any]) -> Client:
    return Client(await Floor.connect(task["urls"]), task["ttl"])


if __name__ == "__main__":
    load.main(connect)
