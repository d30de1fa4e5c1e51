"""Guard with aioredlock and its defaults, three tries, 0.1 to 0.3 s apart.

With a given timeout aioredlock starts no watchdog.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aioredlock import Aioredlock, LockError  # type: ignore[import-not-found,unused-ignore]

from . import LIFE, Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from . import Guard

__all__ = ["opened"]


@asynccontextmanager
async def opened(urls: Sequence[str]) -> AsyncIterator[Guard]:
    """Yield the guard."""
    manager = Aioredlock(list(urls), internal_lock_timeout=LIFE)

    @asynccontextmanager
    async def guard(name: str) -> AsyncIterator[None]:
        try:
            lock = await manager.lock(name, lock_timeout=LIFE)
        except LockError as error:
            raise Refused(str(error)) from error
        try:
            yield
        finally:
            await manager.unlock(lock)

    yield guard
    await asyncio.wait([asyncio.ensure_future(manager.destroy())], timeout=1.0)
