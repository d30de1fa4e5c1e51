"""Base of the drivers of clients that use redis-py's asyncio client on the first node."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis

_CONNECTIONS = 100


class OneNode:
    """Connections to the first node of a task.

    Args:
        task: The task of the driver.
        package: The distribution under measurement. Without one it is redis-py itself.
    """

    def __init__(self, task: dict[str, Any], *package: str) -> None:
        pool = BlockingConnectionPool.from_url(
            task["urls"][0], max_connections=_CONNECTIONS, timeout=None
        )
        self._redis = Redis(connection_pool=pool)
        self._ttl = task["ttl"]
        self.versions = {name: version(name) for name in (*package, "redis", "hiredis")}

    async def close(self) -> None:
        await self._redis.connection_pool.disconnect()
