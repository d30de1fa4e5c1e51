"""Why the first read must show the fence too: what is lost when only writes are checked, and that
nothing is lost else.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng.fencing import StaleFence
from tests.fencing.stores import Memory, open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fencing.stores import Store
    from tests.support.node_set import NodeSet

PAUSED, CURRENT = 1_800_000_000_000_000, 1_800_000_000_000_001


@pytest.fixture(params=["memory", "string", "hash", "sql"])
async def store(
    request: pytest.FixtureRequest, one_node: NodeSet, tmp_path: Path
) -> AsyncIterator[Store]:
    async with open_store(request.param, one_node.urls[0], str(tmp_path / "bank.sqlite")) as opened:
        yield opened


async def test_checking_writes_alone_loses_an_update(store: Store) -> None:
    stale = await store.peek()  # then it is paused, and its lock passes to the other
    fresh = await store.peek()
    await store.write(stale + 1, PAUSED)  # accepted: nobody has shown a newer fence yet
    await store.write(fresh + 10, CURRENT)
    assert await store.peek() == 10, "both writes were accepted, and one of them is gone"


async def test_with_the_fence_on_the_first_read_nothing_is_lost(store: Store) -> None:
    stale = await store.read(PAUSED)
    fresh = await store.read(CURRENT)
    with pytest.raises(StaleFence) as caught:
        await store.write(stale + 1, PAUSED)
    assert (caught.value.fence, caught.value.seen) == (PAUSED, CURRENT)
    await store.write(fresh + 10, CURRENT)
    assert await store.peek() == 10


async def test_a_late_write_before_the_next_holder_reads_is_in_order(store: Store) -> None:
    stale = await store.read(PAUSED)
    await store.write(stale + 1, PAUSED)
    fresh = await store.read(CURRENT)
    await store.write(fresh + 10, CURRENT)
    assert await store.peek() == 11
    with pytest.raises(StaleFence):
        await store.read(PAUSED)


async def lost_in(order: tuple[int, ...], reads_checked: bool) -> int:
    """Let holders with fences 1, 2, 3 read and later write, their steps in this order; return how
    much is missing then.
    """
    store, read, acknowledged = Memory(), dict[int, int](), 0
    for holder in order:
        try:
            if holder not in read:
                read[holder] = await (store.read(holder) if reads_checked else store.peek())
            else:
                await store.write(read[holder] + 10**holder, holder)
                acknowledged += 10**holder
        except StaleFence:
            read[holder] = -1
    return acknowledged - await store.peek()


async def test_no_order_of_three_holders_loses_anything_when_reads_are_checked() -> None:
    orders = set(permutations((1, 1, 2, 2, 3, 3)))
    assert len(orders) == 90
    assert [order for order in orders if await lost_in(order, reads_checked=True)] == []
    assert [order for order in orders if await lost_in(order, reads_checked=False)] != []
