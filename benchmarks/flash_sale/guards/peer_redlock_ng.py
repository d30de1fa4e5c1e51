"""Guard with redlock-ng's AsyncRedlock and its defaults, four tries, 0.1 to 0.3 s apart.

A buyer without the lock is refused.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from redlock import AsyncRedlock  # type: ignore[import-not-found,unused-ignore]

from . import LIFE, Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from . import Guard

__all__ = ["opened"]


@asynccontextmanager
async def opened(urls: Sequence[str]) -> AsyncIterator[Guard]:
    """Yield the guard."""
    redlock = AsyncRedlock(list(urls))

    @asynccontextmanager
    async def guard(name: str) -> AsyncIterator[None]:
        # `async with` of this library enters the body even without the lock.
        lock = await redlock.acquire(name, int(LIFE * 1000))
        if lock is None:
            raise Refused("None")
        try:
            yield
        finally:
            await redlock.release(lock)

    yield guard
    for instance in redlock.client.instances:
        await instance.connection_pool.disconnect()
