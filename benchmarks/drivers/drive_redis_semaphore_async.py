"""Drive redis-semaphore-async on the first node only. Its slots have no ttl."""

from __future__ import annotations

from typing import Any

import load
from one_node import OneNode
from redis_semaphore_async import Semaphore


class Client(OneNode):
    """Make one semaphore object per cycle."""

    def __init__(self, task: dict[str, Any]) -> None:
        super().__init__(task, "redis-semaphore-async")
        self._limit = task["limit"]

    async def acquire(self, key: str) -> Semaphore:
        semaphore = Semaphore(self._redis, key, self._limit)
        await semaphore.acquire()
        return semaphore

    async def release(self, semaphore: Semaphore) -> None:
        await semaphore.release()


async def connect(task: dict[str, Any]) -> Client:
    return Client(task)


if __name__ == "__main__":
    load.main(connect)
