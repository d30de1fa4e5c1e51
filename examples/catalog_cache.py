"""A cache that all processes share. It is read often, and rebuilt seldom.

Readers share the lock, and a rebuild is alone. So nobody reads half a catalog. Each
process also has a copy of its own. The fence of a read lease is the version of the
catalog: while it stays the same, the copy is up to date. Show the catalog in some
processes, and rebuild it in another:

    export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
    python examples/catalog_cache.py redis://127.0.0.1:6379 show &
    python examples/catalog_cache.py redis://127.0.0.1:6379 rebuild
"""

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator

from redis.asyncio import Redis

from aioredlock_ng import Lease, LockLost, LockNotAcquired, Redlock
from aioredlock_ng.fencing import RedisFence, StaleFence

CACHE = "catalog:prices"
"""The key of the shared cache. It must not be that of the lock."""

COMPLETE = "complete"
"""A field of the cache that is written last. Without it a rebuild was interrupted."""

PATIENCE = 30.0
"""Seconds to wait for the lock."""

PAUSE = 1.0
"""Seconds between two readings of `show`."""


class Catalog:
    """The prices of all products."""

    def __init__(self, redlock: Redlock, store: Redis) -> None:
        """Use a client with `decode_responses` for the shared cache."""
        self._lock = redlock.rwlock("catalog", blocking_timeout=PATIENCE)
        self._cache = RedisFence(store)
        self._copy: dict[str, str] = {}
        self._version: int | None = None

    async def prices(self) -> dict[str, str]:
        """Return the prices, all of them of the same rebuild.

        Raises:
            LockNotAcquired: A rebuild took longer than PATIENCE, or too few nodes
                answered.
            LockLost: The lease was lost.
            StaleFence: This process stood still, and lost its lease without noticing.
        """
        async with self._lock.read() as lease:
            # Another reader of this moment may have a higher fence. Then this lease is
            # refused, although it is valid.
            with contextlib.suppress(StaleFence):
                if await self._is_read(lease):
                    return self._copy
        # A read lease cannot become a write lease. Another process may rebuild
        # the catalog before this process gets the lock, so the catalog is read again.
        async with self._lock.write() as lease:
            if not await self._is_read(lease):
                await self._build(lease)
            return self._copy

    async def rebuild(self) -> None:
        """Rebuild the shared cache. Raise the errors of `prices`."""
        async with self._lock.write() as lease:
            await self._build(lease)

    async def _is_read(self, lease: Lease) -> bool:
        """Bring the copy up to date. Return False if there is no whole catalog."""
        if lease.fence != self._version:
            # With the fence, the read also keeps out late writes of an earlier rebuild.
            found = await self._cache.hgetall(CACHE, fence=lease.fence)
            if not found.pop(COMPLETE, None):
                return False
            self._copy, self._version = found, lease.fence
        return True

    async def _build(self, lease: Lease) -> None:
        fence, built = lease.fence, {}
        await self._cache.execute("DEL", CACHE, fence=fence)
        async for product, price in current_prices():
            await self._cache.hset(CACHE, {product: price}, fence=fence)
            built[product] = price
        await self._cache.hset(CACHE, {COMPLETE: 1}, fence=fence)
        # Now other processes may read. The lease has the version that they read, and no
        # other rebuild comes before this process knows it.
        await lease.downgrade()
        self._copy, self._version = built, lease.fence


async def current_prices() -> AsyncIterator[tuple[str, str]]:
    """Yield each product with its price. Your slow query stands here."""
    for product in ("apples", "bread", "cheese"):
        await asyncio.sleep(0.1)
        yield product, f"{random.uniform(1, 9):.2f}"


async def show(catalog: Catalog) -> None:
    while True:
        try:
            print(await catalog.prices(), flush=True)
        except (LockNotAcquired, LockLost, StaleFence) as error:
            print(f"read again later: {error}", flush=True)
        await asyncio.sleep(PAUSE)


async def main(url: str, command: str) -> None:
    store = Redis.from_url(url, decode_responses=True, socket_timeout=None)
    async with Redlock.from_env() as redlock, store:
        catalog = Catalog(redlock, store)
        await (show(catalog) if command == "show" else catalog.rebuild())


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in ("show", "rebuild"):
        sys.exit("usage: catalog_cache.py URL show|rebuild")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
