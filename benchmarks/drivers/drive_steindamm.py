"""Drive the asyncio semaphore of steindamm on the first node only.

The semaphore waits with BLPOP. It does not renew its slots.
"""

from __future__ import annotations

from typing import Any

import load
from one_node import OneNode
from steindamm import AsyncSemaphore


class Client(OneNode):
    """Make one semaphore object per cycle."""

    def __init__(self, task: dict[str, Any]) -> None:
        super().__init__(task, "steindamm")
        self._limit = task["limit"]

    async def acquire(self, key: str) -> AsyncSemaphore:
        # With a `max_sleep` of 0 the semaphore waits without a limit.
        semaphore = AsyncSemaphore.create(
            name=key,
            capacity=self._limit,
            expiry=int(self._ttl),
            max_sleep=0,
            connection=self._redis,
        )
        await semaphore.__aenter__()
        return semaphore

    async def release(self, semaphore: AsyncSemaphore) -> None:
        await semaphore.__aexit__(None, None, None)


async def connect(task: dict[str, Any]) -> Client:
    return Client(task)


if __name__ == "__main__":
    load.main(connect)
