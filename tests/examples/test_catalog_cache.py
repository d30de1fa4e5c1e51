"""The example of a shared cache: nobody reads half a catalog, and the fence says whether the own
copy is up to date.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis

from aioredlock_ng import LockLost, Redlock
from aioredlock_ng.fencing import RedisFence
from examples import catalog_cache
from examples.catalog_cache import Catalog
from tests.support.coverage import untraced

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

PRODUCTS = ("apples", "bread", "cheese")


class Shop:
    """Processes with a catalog each, and the rebuilds and reads of the shared cache."""

    def __init__(self, redlocks: list[Redlock], store: Redis) -> None:
        self.redlocks = redlocks
        self.store = store
        self.catalogs = [Catalog(redlock, store) for redlock in redlocks]
        self.rebuilds = itertools.count(1)
        self.reads = 0
        self.interrupted = False
        self.building, self.going = asyncio.Event(), asyncio.Event()
        self.going.set()

    async def prices(self) -> AsyncIterator[tuple[str, str]]:
        """Yield the number of the rebuild as the price of each product."""
        number = str(next(self.rebuilds))
        self.building.set()
        for product in PRODUCTS:
            await asyncio.sleep(0.005)
            yield product, number
            await self.going.wait()
            if self.interrupted:
                self.interrupted = False
                raise RuntimeError("the source is gone")


@pytest.fixture
async def shop(
    nodes: NodeSet, start_server: Callable[..., LocalServer], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Shop]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            Redis.from_url(start_server().url, decode_responses=True)
        )
        shop = Shop([await stack.enter_async_context(Redlock.from_env()) for _ in range(3)], store)
        read = RedisFence.hgetall

        async def counted(cache: RedisFence, *args: Any, **options: Any) -> dict[Any, Any]:
            shop.reads += 1
            return await read(cache, *args, **options)

        monkeypatch.setattr(RedisFence, "hgetall", counted)
        monkeypatch.setattr(catalog_cache, "current_prices", shop.prices)
        yield shop


async def test_processes_read_whole_catalogs_only_while_another_one_rebuilds(shop: Shop) -> None:
    builder, *readers = shop.catalogs
    done = asyncio.Event()
    seen: set[str] = set()

    async def read(catalog: Catalog) -> None:
        last = 0
        while not done.is_set():
            prices = await catalog.prices()
            assert set(prices) == set(PRODUCTS)
            (number,) = set(prices.values())
            assert int(number) >= last
            last = int(number)
            seen.add(number)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for catalog in readers * 3:
            tasks.create_task(read(catalog))
        for _ in range(5):
            await builder.rebuild()
        done.set()
    assert len(seen) >= 2


async def test_a_process_reads_the_shared_cache_once_per_rebuild(shop: Shop) -> None:
    builder, reader, _ = shop.catalogs
    for rebuilds in (1, 2):
        await builder.rebuild()
        before = shop.reads
        for _ in range(10):
            assert await reader.prices() == dict.fromkeys(PRODUCTS, str(rebuilds))
            assert await builder.prices() == dict.fromkeys(PRODUCTS, str(rebuilds))
        assert shop.reads == before + 1


async def test_processes_that_find_no_catalog_build_it_once(shop: Shop) -> None:
    assert (
        await asyncio.gather(*(catalog.prices() for catalog in shop.catalogs))
        == [dict.fromkeys(PRODUCTS, "1")] * 3
    )


async def test_a_reader_with_a_lower_fence_than_another_one_gets_the_catalog_all_the_same(
    shop: Shop,
) -> None:
    builder, reader, _ = shop.catalogs
    await builder.rebuild()
    async with shop.redlocks[2].rwlock("catalog").read() as lease:
        # A reader that found the counter of a failed writer has this fence.
        await RedisFence(shop.store).hgetall(catalog_cache.CACHE, fence=lease.fence + 1)
        reading = asyncio.create_task(reader.prices())
        await asyncio.sleep(0.1)
    assert await reading == dict.fromkeys(PRODUCTS, "1")


async def test_after_an_interrupted_rebuild_the_next_reader_rebuilds(shop: Shop) -> None:
    builder, reader, _ = shop.catalogs
    await builder.rebuild()
    shop.interrupted = True
    with pytest.raises(RuntimeError, match="the source is gone"):
        await builder.rebuild()
    assert await reader.prices() == dict.fromkeys(PRODUCTS, "3")


async def test_a_rebuild_that_loses_its_lock_ends_and_the_next_reader_rebuilds(shop: Shop) -> None:
    builder, reader, _ = shop.catalogs
    shop.going.clear()
    loser = asyncio.create_task(builder.rebuild())
    await shop.building.wait()
    await shop.redlocks[1].force_release("catalog")
    with pytest.raises(LockLost):
        await loser
    shop.going.set()
    assert await reader.prices() == dict.fromkeys(PRODUCTS, "2")


@pytest.mark.slow
@pytest.mark.once
async def test_a_process_shows_the_catalog_that_another_one_has_built(
    nodes: NodeSet, start_server: Callable[..., LocalServer]
) -> None:
    url = start_server().url

    async def start(command: str) -> asyncio.subprocess.Process:
        program = (sys.executable, EXAMPLES / "catalog_cache.py", url, command)
        return await asyncio.create_subprocess_exec(
            *program, env=untraced(), stdout=asyncio.subprocess.PIPE
        )

    assert await (await start("rebuild")).wait() == 0
    async with Redis.from_url(url, decode_responses=True) as store:
        built = await store.hgetall(catalog_cache.CACHE)
    assert built.pop("complete") == "1"
    shower = await start("show")
    assert shower.stdout is not None
    assert (await shower.stdout.readline()).decode() == f"{built}\n"
    shower.kill()
    await shower.wait()
