"""Drives redis-py's own asyncio Lock on the first node only: a fifth of the work; it never stands for a Redlock."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import load
from redis.asyncio import BlockingConnectionPool, Redis

if TYPE_CHECKING:
    from redis.asyncio.lock import Lock

_CONNECTIONS = 100


class Client:
    """A lock object per cycle, as `async with client.lock(name)` makes it."""

    def __init__(self, task: dict[str, Any]) -> None:
        pool = BlockingConnectionPool.from_url(task["urls"][0], max_connections=_CONNECTIONS, timeout=None)
        self._redis = Redis(connection_pool=pool)
        self._ttl = task["ttl"]
        self.versions = {name: version(name) for name in ("redis", "hiredis")}

    async def acquire(self, key: str) -> Lock:
        lock = self._redis.lock(key, timeout=self._ttl)
        await lock.acquire()
        return lock

    async def release(self, lock: Lock) -> None:
        await lock.release()

    async def close(self) -> None:
        await self._redis.connection_pool.disconnect()


async def connect(task: dict[str, Any]) -> Client:
    return Client(task)


if __name__ == "__main__":
    load.main(connect)
