"""Drive redis-py's asyncio Lock on the first node only.

A lock on one node does a fifth of the work, and no majority protects it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import load
from one_node import OneNode

if TYPE_CHECKING:
    from redis.asyncio.lock import Lock


class Client(OneNode):
    """Make one lock object per cycle, as `async with client.lock(name)` does.

    `sleep` in the task is the time in seconds between two attempts. redis-py's default is 0.1.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        super().__init__(task)
        self._sleep = task.get("sleep", 0.1)

    async def acquire(self, key: str) -> Lock:
        lock = self._redis.lock(key, timeout=self._ttl, sleep=self._sleep)
        await lock.acquire()
        return lock

    async def release(self, lock: Lock) -> None:
        await lock.release()


async def connect(task: dict[str, Any]) -> Client:
    return Client(task)


if __name__ == "__main__":
    load.main(connect)
