"""Wait with the library for locks that other clients hold and end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import wakeup

from aioredlock_ng import Redlock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def connect(urls: list[str]) -> AsyncIterator[wakeup.Wait]:
    async with Redlock(urls) as redlock:

        async def wait(name: str) -> asyncio.Task[float]:
            async def waiter() -> float:
                lease = await redlock.lock(name).acquire()
                got = time.perf_counter()
                await lease.release()
                return got

            attempts = redlock.stats().attempts
            task = asyncio.create_task(waiter())
            # The library has no event for the end of an attempt.
            while redlock.stats().attempts == attempts:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            while any(node.pending for node in redlock.nodes):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            # The pause must be longer than 20 ms. A wake-up that follows an attempt within 20 ms
            # counts as one of many.
            await asyncio.sleep(0.03)
            return task

        yield wait


if __name__ == "__main__":
    wakeup.main(connect)
