"""Guard with pottery's AIORedlock, one lock object per buyer, as its README shows.

An acquire waits without a limit, which is its default.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pottery import AIORedlock  # type: ignore[import-not-found,unused-ignore]
from redis.asyncio import BlockingConnectionPool, Redis

from . import LIFE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from . import Guard

__all__ = ["opened"]

# Without a limit pottery's clients fail because they run out of connections.
_CONNECTIONS = 100


@asynccontextmanager
async def opened(urls: Sequence[str]) -> AsyncIterator[Guard]:
    """Yield the guard."""
    logging.getLogger("pottery").setLevel(logging.CRITICAL)
    pools = [
        BlockingConnectionPool.from_url(url, max_connections=_CONNECTIONS, timeout=None)
        for url in urls
    ]
    masters = [Redis(connection_pool=pool) for pool in pools]
    yield lambda name: AIORedlock(key=name, masters=masters, auto_release_time=LIFE)
    for pool in pools:
        await pool.disconnect()
