"""The floor of the benchmarks sends the library's own scripts, and servers accept them."""

from __future__ import annotations

import asyncio

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.floor import Bare, Floor


def test_the_floor_acquires_and_releases_on_servers() -> None:
    async def cycle(kind: type[Floor], urls: list[str]) -> None:
        floor = await kind.connect(urls)
        async with asyncio.timeout(20):
            for _ in range(3):
                await floor.release(await floor.acquire("floor", 10_000))
        floor.close()

    for kind in (Floor, Bare):
        with LocalNodes(3) as nodes:
            asyncio.run(cycle(kind, list(nodes.urls)))
