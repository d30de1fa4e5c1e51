"""A `Redlock` that is opened when it is first asked for and once closed stays closed; it knows nothing of locks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioredlock_ng.compat._errors import LockRuntimeError, in_words_of_aioredlock

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from aioredlock_ng import LockInfo, Redlock

__all__ = ["Access", "name_of"]


def name_of(resource: str | bytes | float) -> str | bytes:
    """The name of a resource; aioredis writes numbers as keys, too."""
    return str(resource) if type(resource) in (int, float) else resource  # type: ignore[return-value]


class Access:
    """The way of an `Aioredlock` to its nodes.

    Args:
        redlock: Over these nodes.
        sentinels: Clients that are asked for them, to be closed with it.

    Attributes:
        destroyed: True once it is closed for good.
    """

    def __init__(self, redlock: Redlock, sentinels: list[Redis]) -> None:
        self._redlock = redlock
        self._sentinels = sentinels
        self._opening = asyncio.Lock()
        self._open = False
        self.destroyed = False

    async def redlock(self) -> Redlock:
        """Open it if nobody has.

        Raises:
            LockRuntimeError: It is destroyed.
            ConfigurationError: Two of the nodes are the same server.

        Safety: cancelled, the next to ask opens it.
        """
        async with self._opening:
            if self.destroyed:
                raise LockRuntimeError("this Aioredlock is destroyed; make a new one")
            if not self._open:
                await self._redlock.open()
                # What a lock is known by here is its token.
                self._redlock.engine().lines.passing = False
                self._open = True
        return self._redlock

    async def inspect(self, resource: str | bytes | float) -> LockInfo:
        """Who holds a lock.

        Raises:
            LockRuntimeError: No majority could be asked.
        """
        redlock = await self.redlock()
        with in_words_of_aioredlock():
            return await redlock.inspect(name_of(resource))

    async def destroy(self) -> None:
        """Close it for good.

        Raises:
            LockRuntimeError: Called from another event loop or a forked process; nothing was closed.

        Safety: as `aioredlock_ng.Redlock.aclose`; cancelled, it can be called again.
        """
        async with self._opening:
            with in_words_of_aioredlock():
                await self._redlock.aclose()
            for client in self._sentinels:
                await client.aclose()
            self.destroyed = True
