"""Guard with redis-py's asyncio Lock on one node, as `redis.lock(name, timeout=…)` makes it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from redis.asyncio import BlockingConnectionPool, Redis

from . import LIFE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from . import Guard

__all__ = ["opened"]

# Without a limit redis-py would open a connection per waiter, and more.
_CONNECTIONS = 100


@asynccontextmanager
async def opened(urls: Sequence[str]) -> AsyncIterator[Guard]:
    """Yield the guard. By default the lock waits without a limit and retries every 0.1 s."""
    pool = BlockingConnectionPool.from_url(urls[0], max_connections=_CONNECTIONS, timeout=None)
    redis = Redis(connection_pool=pool)
    yield lambda name: redis.lock(name, timeout=LIFE)
    await pool.disconnect()
