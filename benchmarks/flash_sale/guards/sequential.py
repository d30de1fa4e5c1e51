"""Guard with the Redlock algorithm as its text describes it, without any improvement.

The client asks the nodes one after the other, sleeps for a fixed time, and retries three times. The
text is https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/.
"""

from __future__ import annotations

import secrets
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError

from . import LIFE
from .waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from . import Guard

__all__ = ["SequentialRedlock", "opened"]

_CONNECTIONS = 100
_DRIFT = 0.01
_RELEASE = (
    'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0'
)


class SequentialRedlock:
    """The token of one attempt on every node.

    Args:
        nodes: A client per node.
        name: The key.
        life: Ttl in seconds.
    """

    def __init__(self, nodes: Sequence[Redis], name: str, life: float) -> None:
        self._nodes = nodes
        self._name = name
        self._life = life
        self._token = ""

    async def attempt(self) -> bool:
        """Ask the nodes one after the other. Release the lock if the majority is missing."""
        self._token = secrets.token_hex(16)
        started, granted = time.monotonic(), 0
        for node in self._nodes:
            with suppress(RedisError):
                granted += bool(
                    await node.set(self._name, self._token, nx=True, px=int(self._life * 1000))
                )
        left = self._life - (time.monotonic() - started) - self._life * _DRIFT - 0.002
        if granted > len(self._nodes) // 2 and left > 0:
            return True
        await self.release()
        return False

    async def release(self) -> None:
        """Release the lock on the nodes, one after the other."""
        for node in self._nodes:
            with suppress(RedisError):
                await node.eval(_RELEASE, 1, self._name, self._token)


@asynccontextmanager
async def opened(urls: Sequence[str], **waiting: Any) -> AsyncIterator[Guard]:
    """Yield the guard. `waiting` has the arguments of `Waiting`."""
    pools = [
        BlockingConnectionPool.from_url(url, max_connections=_CONNECTIONS, timeout=None)
        for url in urls
    ]
    nodes, patience = [Redis(connection_pool=pool) for pool in pools], Waiting(**waiting)

    @asynccontextmanager
    async def guard(name: str) -> AsyncIterator[None]:
        lock = SequentialRedlock(nodes, name, LIFE)
        await patience.until(lock.attempt)
        try:
            yield
        finally:
            await lock.release()

    yield guard
    for pool in pools:
        await pool.disconnect()
