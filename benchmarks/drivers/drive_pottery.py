"""Drive pottery's AIORedlock in its own environment.

The number of connections per node is limited to that of aioredlock.
"""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Any

import load
from pottery import AIORedlock
from redis.asyncio import BlockingConnectionPool, Redis

# This is the upper limit of aioredlock per node. Without a limit pottery's clients fail because
# they run out of connections.
_CONNECTIONS = 100


class Client:
    """Make one lock object per cycle.

    pottery keeps the token on the object, so two tasks cannot share an object.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        pools = [
            BlockingConnectionPool.from_url(url, max_connections=_CONNECTIONS, timeout=None)
            for url in task["urls"]
        ]
        self._masters = [Redis(connection_pool=pool) for pool in pools]
        self._ttl = task["ttl"]
        self.versions = {name: version(name) for name in ("pottery", "redis", "hiredis")}

    async def acquire(self, key: str) -> AIORedlock:
        lock = AIORedlock(key=key, masters=self._masters, auto_release_time=self._ttl)
        await lock.acquire()
        return lock

    async def release(self, lock: AIORedlock) -> None:
        await lock.release()

    async def close(self) -> None:
        for master in self._masters:
            await master.connection_pool.disconnect()


async def connect(task: dict[str, Any]) -> Client:
    logging.disable(logging.CRITICAL)
    return Client(task)


if __name__ == "__main__":
    load.main(connect)
