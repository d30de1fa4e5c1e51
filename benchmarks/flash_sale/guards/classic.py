"""The locks of old articles, on one node: SETNX with GETSET, and SET NX EX.

Both locks store a time as the value, and keep their known faults. A client whose clock is fast
acquires a lock that has not expired. A time does not identify the holder.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from redis.asyncio import BlockingConnectionPool, Redis

from . import LIFE
from .waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from . import Guard

__all__ = ["GetSetLock", "TimeValueLock", "opened"]

_CONNECTIONS = 100


class GetSetLock:
    """A lock whose value is the time of its expiry.

    A client that finds an expired value replaces it by GETSET. The client whose GETSET returns the
    expired value gets the lock.

    Args:
        redis: The one node.
        name: The key.
        life: Ttl in seconds.
        clock: Returns the seconds since 1970. Every client has a clock of its own.
    """

    def __init__(
        self, redis: Redis, name: str, life: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._redis = redis
        self._name = name
        self._life = life
        self._clock = clock
        self._expires = 0.0

    async def attempt(self) -> bool:
        """Try to acquire the lock once."""
        self._expires = self._clock() + self._life
        if await self._redis.setnx(self._name, repr(self._expires)):
            return True
        found = await self._redis.get(self._name)
        if found is None or float(found) > self._clock():
            return False
        self._expires = self._clock() + self._life
        before = await self._redis.getset(self._name, repr(self._expires))
        return before is None or before == found

    async def release(self) -> None:
        """Delete the key if it has not expired. An expired key may belong to another client."""
        if self._clock() < self._expires:
            await self._redis.delete(self._name)


class TimeValueLock:
    """The lock of `SET name time NX EX life`.

    A release deletes the key if its value is still that time.

    Args:
        redis: The one node.
        name: The key.
        life: Ttl in whole seconds.
        clock: Returns the seconds since 1970.
    """

    def __init__(
        self, redis: Redis, name: str, life: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._redis = redis
        self._name = name
        self._life = int(life)
        self._clock = clock
        self._value = b""

    async def attempt(self) -> bool:
        """Try to acquire the lock once."""
        self._value = b"%d" % (self._clock() * 1000)
        return bool(await self._redis.set(self._name, self._value, nx=True, ex=self._life))

    async def release(self) -> None:
        """Compare the value and delete the key, with two commands.

        The key may change between the two commands.
        """
        if await self._redis.get(self._name) == self._value:
            await self._redis.delete(self._name)


_KINDS: Final[dict[str, type[GetSetLock | TimeValueLock]]] = {
    "getset": GetSetLock,
    "setnx-ex": TimeValueLock,
}


@asynccontextmanager
async def opened(urls: Sequence[str], kind: str, **waiting: Any) -> AsyncIterator[Guard]:
    """Yield the guard of one kind. `waiting` has the arguments of `Waiting`."""
    pool = BlockingConnectionPool.from_url(urls[0], max_connections=_CONNECTIONS, timeout=None)
    redis, patience, make = Redis(connection_pool=pool), Waiting(**waiting), _KINDS[kind]

    @asynccontextmanager
    async def guard(name: str) -> AsyncIterator[None]:
        lock = make(redis, name, LIFE)
        await patience.until(lock.attempt)
        try:
            yield
        finally:
            await lock.release()

    yield guard
    await pool.disconnect()
