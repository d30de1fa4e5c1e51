"""Measure the CPU time of a client process per acquisition, by the number of nodes."""

from __future__ import annotations

import asyncio
import time

from aioredlock_ng import Redlock
from aioredlock_ng.testing import LocalNodes

__all__ = ["measure_client"]

_COROUTINES = 100


def measure_client(nodes: int, cycles: int) -> float:
    """Acquire and release names without contention, with a hundred coroutines.

    Args:
        nodes: Number of real servers.
        cycles: Number of acquisitions, after half as many for the warm-up.

    Returns:
        Microseconds of CPU of the client's process per acquisition.
    """
    with LocalNodes(nodes) as servers:
        return asyncio.run(_measure(servers.urls, cycles))


async def _measure(urls: list[str], cycles: int) -> float:
    async with Redlock(urls) as redlock:

        async def some(coroutine: int, each: int) -> None:
            for number in range(each):
                async with redlock.lock(f"orders:{coroutine}:{number}"):
                    pass

        async def all_of(count: int) -> None:
            async with asyncio.TaskGroup() as tasks:
                for coroutine in range(_COROUTINES):
                    tasks.create_task(some(coroutine, max(1, count // _COROUTINES)))

        await all_of(cycles // 2)
        before = time.process_time()
        await all_of(cycles)
        return (time.process_time() - before) * 1e6 / (max(1, cycles // _COROUTINES) * _COROUTINES)
