"""Questions to the Sentinels of a node, on connections of their own.

The clients of the user's `Sentinel` belong to the event loop of the user, which need not be the
loop of the manager. They also retry for longer than a node may take to connect, so a Sentinel that
is down would keep redis-py from asking the next one.
"""

from __future__ import annotations

import copy
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import redis.asyncio as aredis
from redis import exceptions as redis_errors
from redis.asyncio.sentinel import SentinelConnectionPool

from aioredlock_ng._nodes.node_settings import settings_without_retries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["asked_anew"]


@asynccontextmanager
async def asked_anew(pool: Any, within: float) -> AsyncIterator[dict[str, Any]]:
    """Yield the settings by which a connection asks the Sentinels of `pool` on new connections.

    A Sentinel that does not answer costs only a part of the `within` seconds, so that there is time
    to ask the other Sentinels and to connect. At the end, the connections to the Sentinels are
    closed. If `pool` has no Sentinels, the settings are empty.
    """
    if not isinstance(pool, SentinelConnectionPool):
        yield {}
        return
    # The copy keeps the methods of a user's own class of `Sentinel`.
    manager = copy.copy(pool.sentinel_manager)
    share = within / (len(manager.sentinels) + 1)
    manager.sentinels = [_client(one.connection_pool, share) for one in manager.sentinels]
    # A pool notes the primary, and disconnects its connections when the primary changes. So the
    # user's own pool must not be asked either.
    make: Any = SentinelConnectionPool
    asking = make(
        pool.service_name,
        manager,
        is_master=pool.is_master,
        check_connection=pool.check_connection,
    )
    try:
        yield {"connection_pool": asking}
    finally:
        for client in manager.sentinels:
            # An orderly end of TLS may take too long, after the Sentinel has answered.
            with suppress(redis_errors.RedisError, OSError):
                await client.aclose()


def _client(pool: Any, share: float) -> Any:
    """Return a client with the settings of `pool` that gives up after `share` seconds."""
    settings = settings_without_retries(pool.connection_kwargs)
    settings |= {"socket_timeout": share, "socket_connect_timeout": share}
    return aredis.Redis.from_pool(
        aredis.ConnectionPool(connection_class=pool.connection_class, **settings)
    )
