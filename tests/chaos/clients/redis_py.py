"""The workload's way to redis-py's own asyncio Lock: on the first node only, renewed by a task as
its users write it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError

from ..history import SHOWN
from .port import NotGot, Unfenced

if TYPE_CHECKING:
    from redis.asyncio.lock import Lock

    from .port import Body, Wish

__all__ = ["RedisPy", "make"]


class LockHold:
    """A lock of redis-py: it has no deadline and no fence, and nobody is told of its loss."""

    fence: int | None = None
    slot: int | None = None
    since: int | None = None
    votes = ""

    def __init__(self, lock: Lock) -> None:
        self.token = bytes(lock.local.token).decode()[:SHOWN]

    def deadline(self) -> int | None:
        """It does not say."""
        return None

    def lost(self) -> str:
        """It does not say, unless it is asked over the network."""
        return ""

    def lost_at(self) -> int | None:
        """It does not say."""
        return None

    async def wait_lost(self) -> None:
        """Nobody tells."""
        await asyncio.get_running_loop().create_future()


class RedisPy(Unfenced):
    """A client of one node."""

    async def open(self, task: dict[str, Any]) -> None:
        """Connect."""
        pool = BlockingConnectionPool.from_url(task["urls"][0], max_connections=40, timeout=None)
        self._redis = Redis(connection_pool=pool)
        self._ttl: float = task["ttl"]

    async def hold(self, wish: Wish, body: Body) -> bool:
        """Lock the first name. The library has no locks of several names."""
        lock = self._redis.lock(
            wish.names[0],
            timeout=self._ttl,
            blocking=wish.how != "try",
            blocking_timeout=wish.wait,
            sleep=0.02,
        )
        try:
            if not await lock.acquire():
                raise NotGot("held")
        except RedisError as error:
            raise NotGot(type(error).__name__) from None
        renewing = asyncio.create_task(self._renew(lock))
        try:
            await body(LockHold(lock))
        finally:
            renewing.cancel()
            with contextlib.suppress(RedisError):
                await lock.release()
        return True

    async def _renew(self, lock: Lock) -> None:
        while True:
            await asyncio.sleep(self._ttl / 3)
            with contextlib.suppress(RedisError):
                await lock.reacquire()

    async def close(self) -> None:
        """Disconnect."""
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()


def make() -> RedisPy:
    """Make the client of this process."""
    return RedisPy()
