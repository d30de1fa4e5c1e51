"""Drive redlock-ng's AsyncRedlock in its own environment, as its README shows.

An acquire that returns None counts as an error, so no cycle runs without the lock.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import load
from redlock import AsyncRedlock, Lock


class NotAcquired(Exception):
    """The library returned None, because it gave up after its retries."""


class Client:
    """Acquire and release locks of one client. Its socket timeout is the default, 0.1 s."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._redlock = AsyncRedlock(task["urls"])
        self._ttl_ms = int(task["ttl"] * 1000)
        self.versions = {name: version(name) for name in ("redlock-ng", "redis", "hiredis")}

    async def acquire(self, key: str) -> Lock:
        lock = await self._redlock.acquire(key, self._ttl_ms)
        if lock is None:
            raise NotAcquired(key)
        return lock

    async def release(self, lock: Lock) -> None:
        await self._redlock.release(lock)

    async def close(self) -> None:
        for instance in self._redlock.client.instances:
            await instance.connection_pool.disconnect()


async def connect(task: dict[str, Any]) -> Client:
    return Client(task)


if __name__ == "__main__":
    load.main(connect)
