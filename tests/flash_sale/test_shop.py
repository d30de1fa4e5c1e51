"""Without a lock the shop sells one item twice, and with our lock never.

Each answer of the shop has the right kind.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from benchmarks.flash_sale.guards import Refused, nothing, ours
from benchmarks.flash_sale.shop import FAILED, REFUSED, SOLD, SOLD_OUT, Shop
from benchmarks.flash_sale.till import KEY, Till
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once


class Gate(Till):
    """A till that lets nobody on between reading and writing before it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.open = asyncio.Event()

    async def left(self) -> int:
        found = await super().left()
        self.reads += 1
        await self.open.wait()
        return found


@pytest.fixture
def stock(start_server: Callable[..., LocalServer]) -> LocalServer:
    server = start_server()
    server.command("SET", KEY, "1")
    return server


@pytest.fixture
async def gate(stock: LocalServer) -> AsyncIterator[Gate]:
    till = await Gate.connect(stock.url)
    yield till
    till.close()


async def test_without_a_lock_the_last_item_is_sold_to_two_buyers(
    stock: LocalServer, gate: Gate
) -> None:
    async with nothing.opened([]) as guard, asyncio.TaskGroup() as tasks:
        shop = Shop(guard, gate)
        buyers = [tasks.create_task(shop.buy()) for _ in range(2)]
        await eventually(lambda: gate.reads == 2)
        gate.open.set()
    assert [buyer.result() for buyer in buyers] == [SOLD, SOLD]
    assert stock.command("GET", KEY) == b"0"


async def test_with_our_lock_the_second_buyer_reads_after_the_first_has_written(
    stock: LocalServer, gate: Gate, three_nodes: NodeSet
) -> None:
    async with Redlock(three_nodes.urls) as redlock, asyncio.TaskGroup() as tasks:
        shop = Shop(redlock.lock, gate)
        buyers = [tasks.create_task(shop.buy()) for _ in range(2)]
        await eventually(lambda: gate.reads == 1 and redlock.stats().waiting == 1)
        gate.open.set()
    assert sorted(buyer.result() for buyer in buyers) == [SOLD, SOLD_OUT]
    assert stock.command("GET", KEY) == b"0"


async def test_with_our_lock_two_shops_sell_the_whole_stock_and_no_more(
    stock: LocalServer, five_nodes: NodeSet
) -> None:
    stock.command("SET", KEY, "20")
    tills = [await Till.connect(stock.url) for _ in range(2)]
    async with ours.opened(five_nodes.urls) as one, ours.opened(five_nodes.urls) as other:
        shops = [Shop(one, tills[0]), Shop(other, tills[1])]
        answers = await asyncio.gather(*(shop.buy() for shop in shops for _ in range(25)))
    for till in tills:
        till.close()
    assert sorted(answers) == [SOLD] * 20 + [SOLD_OUT] * 30
    assert stock.command("GET", KEY) == b"0"


async def test_a_lock_that_gives_up_is_counted_apart_from_a_lock_that_fails(
    stock: LocalServer, gate: Gate
) -> None:
    class Raising:
        def __init__(self, error: Exception) -> None:
            self.error = error

        async def __aenter__(self) -> None:
            raise self.error

        async def __aexit__(self, *_: object) -> None:
            raise AssertionError("never entered")

    assert await Shop(lambda _: Raising(Refused("no more tries")), gate).buy() == REFUSED
    broken = Shop(lambda _: Raising(OSError("gone")), gate)
    assert await broken.buy() == FAILED
    assert broken.first_error == "OSError: gone"


async def test_a_stock_that_is_gone_is_an_error_at_once(stock: LocalServer) -> None:
    till = await Till.connect(stock.url)
    stock.stop()
    async with nothing.opened([]) as guard:
        shop = Shop(guard, till)
        assert await shop.buy() == FAILED
        assert await shop.buy() == FAILED
    assert shop.first_error.startswith("Connection")
