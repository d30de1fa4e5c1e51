"""The old locks behave as their articles describe them, faults included.

With other locks the comparison would not be fair.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis

from benchmarks.flash_sale.guards import Refused
from benchmarks.flash_sale.guards.classic import GetSetLock, TimeValueLock
from benchmarks.flash_sale.guards.sequential import SequentialRedlock
from benchmarks.flash_sale.guards.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once

LIFE = 10.0


class Clock:
    """A client's own clock."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def redis(one_node: NodeSet) -> AsyncIterator[Redis]:
    async with Redis.from_url(one_node.urls[0]) as client:
        yield client


async def test_getset_keeps_others_out_until_it_is_released(redis: Redis) -> None:
    clock = Clock()
    first, second = GetSetLock(redis, "item", LIFE, clock), GetSetLock(redis, "item", LIFE, clock)
    assert await first.attempt()
    assert not await second.attempt()
    await first.release()
    assert await second.attempt()


async def test_getset_grants_an_expired_lock_to_one_of_two_clients(redis: Redis) -> None:
    clock = Clock()
    dead, second, third = (GetSetLock(redis, "item", LIFE, clock) for _ in range(3))
    assert await dead.attempt()
    clock.now += LIFE + 1

    # Both have read the old time before either writes.
    both_read = asyncio.Barrier(2)

    class Late(Redis):
        async def get(self, name: Any) -> Any:
            found = await redis.get(name)
            await both_read.wait()
            return found

    late = Late.from_url(f"redis://127.0.0.1:{redis.connection_pool.connection_kwargs['port']}")
    second._redis = third._redis = late
    won = await asyncio.gather(second.attempt(), third.attempt())
    await late.aclose()
    assert sorted(won) == [False, True]


async def test_getset_does_not_delete_a_lock_that_may_be_another_clients(redis: Redis) -> None:
    clock = Clock()
    slow, other = GetSetLock(redis, "item", LIFE, clock), GetSetLock(redis, "item", LIFE, clock)
    assert await slow.attempt()
    clock.now += LIFE + 1
    assert await other.attempt()
    await slow.release()
    assert await redis.exists("item")


async def test_getset_gives_a_live_lock_to_a_client_whose_clock_is_ahead(redis: Redis) -> None:
    holder, ahead = (
        GetSetLock(redis, "item", LIFE, Clock(1000.0)),
        GetSetLock(redis, "item", LIFE, Clock(1011.0)),
    )
    assert await holder.attempt()
    assert await ahead.attempt()


async def test_a_lock_with_a_time_as_its_value_may_delete_the_lock_of_another_client(
    redis: Redis,
) -> None:
    clock = Clock()
    first, second = (
        TimeValueLock(redis, "item", LIFE, clock),
        TimeValueLock(redis, "item", LIFE, clock),
    )
    assert await first.attempt()
    assert 0 < await redis.pttl("item") <= LIFE * 1000
    assert not await second.attempt()
    # It expires, and another takes it in the same millisecond by its own clock.
    await redis.delete("item")
    assert await second.attempt()
    await first.release()
    assert not await redis.exists("item"), "the first has deleted the second's lock"


async def test_redlock_in_sequence_takes_a_majority_and_leaves_nothing_of_a_minority(
    five_nodes: NodeSet,
) -> None:
    clients = [Redis.from_url(url) for url in five_nodes.urls]
    try:
        for client in clients[:3]:
            await client.set("item", "another's")
        loser = SequentialRedlock(clients, "item", LIFE)
        assert not await loser.attempt()
        assert list(map(len, five_nodes.keys())) == [1, 1, 1, 0, 0]
        await clients[0].delete("item")
        winner = SequentialRedlock(clients, "item", LIFE)
        assert await winner.attempt()
        await winner.release()
        assert list(map(len, five_nodes.keys())) == [0, 1, 1, 0, 0]
    finally:
        for client in clients:
            await client.aclose()


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("waiting", "least", "most"),
    [
        (Waiting(2.0), 8.0, 8.0),
        (Waiting(0.1), 0.4, 0.4),
        (Waiting(0.1, random_pause=True), 0.2, 0.4),
        (Waiting(), 0.0, 0.0),
    ],
    ids=["2 s", "0.1 s", "random pause", "no sleep"],
)
async def test_a_waiting_client_tries_again_after_its_delay(
    waiting: Waiting, least: float, most: float
) -> None:
    loop, answers = asyncio.get_running_loop(), itertools.chain([False] * 4, [True])
    started = loop.time()

    async def attempt() -> bool:
        return next(answers)

    await waiting.until(attempt)
    assert least - 1e-6 <= loop.time() - started <= most + 1e-6


@pytest.mark.virtual_time
async def test_a_client_with_a_limited_number_of_tries_gives_up_after_them() -> None:
    tried = 0

    async def attempt() -> bool:
        nonlocal tried
        tried += 1
        return False

    with pytest.raises(Refused, match="3 tries"):
        await Waiting(0.1, random_pause=True, tries=3).until(attempt)
    assert tried == 3
