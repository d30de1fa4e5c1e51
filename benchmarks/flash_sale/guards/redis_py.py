"""redis-py's own asyncio Lock on one node, as `async with redis.lock(name, timeout=…)` makes it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from redis.asyncio import BlockingConnectionPool, Redis

from . import LIFE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from . import Guard

__all__ = ["opened"]

# Without a bound it would open a connection per waiter, and more.
_CONNECTIONS = 100


@asynccontextmanager
async def opened(urls: Sequence[str]) -> AsyncIterator[Guard]:
    """Give the guard: it waits for ever and asks every 0.1 s, which are its defaults."""
    pool = BlockingConnectionPool.from_url(urls[0], max_connections=_CONNECTIONS, timeout=None)
    redis = Redis(connection_pool=pool)
    yield lambda name: redis.lock(name, timeout=LIFE)
    await pool.disconnect()
