"""Guard with aioredlock_ng, with every option at its default, as the README shows.

An acquire waits without a limit, like that of redis-py's Lock.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aioredlock_ng import LockNotAcquired, Redlock

from . import LIFE, Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from . import Guard

__all__ = ["opened"]


@asynccontextmanager
async def opened(urls: Sequence[str]) -> AsyncIterator[Guard]:
    """Yield the guard."""

    @asynccontextmanager
    async def guard(name: str) -> AsyncIterator[None]:
        try:
            async with redlock.lock(name):
                yield
        except LockNotAcquired as error:
            raise Refused(str(error)) from error

    async with Redlock(urls, ttl=LIFE) as redlock:
        yield guard
