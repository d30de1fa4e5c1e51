"""Drive the asyncio semaphore of py-redis-semaphore on the first node only.

The semaphore waits with BLPOP, and its heartbeat has the default settings.
"""

from __future__ import annotations

from typing import Any

import load
from one_node import OneNode
from redis_semaphore import Semaphore, SemaphoreConfig


class Client(OneNode):
    """Make one semaphore object per cycle, because an object has one holder."""

    def __init__(self, task: dict[str, Any]) -> None:
        super().__init__(task, "py-redis-semaphore")
        self._limit = task["limit"]

    async def acquire(self, key: str) -> Semaphore:
        semaphore = Semaphore(
            self._redis, SemaphoreConfig(name=key, limit=self._limit, lock_timeout=self._ttl)
        )
        await semaphore.aacquire()
        return semaphore

    async def release(self, semaphore: Semaphore) -> None:
        await semaphore.arelease()


async def connect(task: dict[str, Any]) -> Client:
    return Client(task)


if __name__ == "__main__":
    load.main(connect)
