"""Several managers (as several processes have them) that want the same resource on real nodes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from aioredlock_ng import AcquireTimeout, LockHeld, Redlock
from tests.integration.helpers import Witness, no_keys_left, state_of
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet


@pytest.mark.faults
async def test_a_contender_whose_majority_went_away_leaves_no_key_on_the_rest(
    five_nodes: NodeSet,
) -> None:
    async with Redlock(five_nodes.urls) as holder, Redlock(five_nodes.urls) as contender:
        # Contenders ask one node first; it is to be one of the two that stay.
        order = next(
            name for name in map("order:{}".format, range(100)) if crc32(name.encode()) % 5 == 1
        )
        lease = await holder.lock(order, ttl=60).acquire()
        waiting = asyncio.create_task(contender.lock(order, ttl=60).acquire())
        await eventually(lambda: contender.stats().refused > 0)
        for index in (0, 2, 3):
            await asyncio.to_thread(five_nodes.crash, index)
        await eventually(lambda: all(state_of(contender, index) == "down" for index in (0, 2, 3)))
        refused = contender.stats().refused
        await lease.release()
        await eventually(lambda: contender.stats().refused > refused)
        waiting.cancel()
        await asyncio.wait([waiting])
        await eventually(lambda: not any(contender.nodes[index].pending for index in (1, 4)))
        assert [five_nodes[index].command("EXISTS", order) for index in (1, 4)] == [b"0", b"0"]


@pytest.mark.faults
@pytest.mark.parametrize("down", [0, 2])
async def test_a_held_lock_is_refused_as_held_with_a_node_down(
    down: int, three_nodes: NodeSet
) -> None:
    async with (
        Redlock(three_nodes.urls, node_timeout=5.0) as redlock,
        Redlock(three_nodes.urls, node_timeout=5.0) as other,
    ):
        await asyncio.to_thread(three_nodes.crash, down)
        await eventually(lambda: state_of(redlock, down) == state_of(other, down) == "down")
        async with redlock.lock("order"):
            assert await other.lock("order").try_acquire() is None
            with pytest.raises(LockHeld):
                await other.lock("order", blocking_timeout=0).acquire()
            with pytest.raises(AcquireTimeout):
                await other.lock("order", blocking_timeout=2.5).acquire()
            assert other.stats().unreachable == 0


@pytest.mark.faults
@pytest.mark.usefixtures("no_polling")
@pytest.mark.parametrize("down", [0, 2])
async def test_with_a_node_down_a_waiter_is_still_woken_and_does_not_poll(
    down: int, three_nodes: NodeSet
) -> None:
    async with Redlock(three_nodes.urls) as redlock, Redlock(three_nodes.urls) as other:
        await asyncio.to_thread(three_nodes.crash, down)
        await eventually(lambda: state_of(redlock, down) == state_of(other, down) == "down")
        waits = []
        for _ in range(30):
            lease = await redlock.lock("order", ttl=60).acquire()
            attempts = other.stats().attempts
            waiting = asyncio.create_task(other.lock("order", ttl=30).acquire())
            await eventually(lambda attempts=attempts: other.stats().attempts > attempts)
            await eventually(lambda: sum(node.pending for node in other.nodes) == 0)
            began = time.monotonic()
            await lease.release()
            # Neither the slow look nor expiry comes before this.
            lease = await asyncio.wait_for(waiting, 20)
            waits.append(time.monotonic() - began)
            await lease.release()
        assert sorted(waits)[15] < 0.5, "the waiters were not woken"
        assert other.stats().attempts < 30 * 6, "the waiters polled"


@pytest.mark.parametrize("count", [2, 4])
async def test_a_held_lock_is_refused_as_held_with_an_even_number_of_nodes(
    count: int, five_nodes: NodeSet
) -> None:
    urls = five_nodes.urls[:count]
    async with (
        Redlock(urls, node_timeout=5.0) as redlock,
        Redlock(urls, node_timeout=5.0) as other,
        redlock.lock("order"),
    ):
        assert await other.lock("order").try_acquire() is None
        with pytest.raises(AcquireTimeout):
            await other.lock("order", blocking_timeout=2.5).acquire()


@pytest.mark.parametrize("count", [2, 3, 4])
async def test_split_votes_settle(count: int, five_nodes: NodeSet) -> None:
    """On an even number two contenders can both have half (node-redlock never settles that)."""
    urls = five_nodes.urls[:count]
    async with Redlock(urls) as redlock, Redlock(urls) as other, Redlock(urls) as third:
        witness = Witness()

        async def work(manager: Redlock) -> None:
            for _ in range(60):
                # Far sooner than the ttl: none waits for the expiry of what nobody holds.
                async with manager.lock("order", ttl=60, blocking_timeout=20):
                    with witness("order"):
                        await asyncio.sleep(0)

        await asyncio.wait_for(asyncio.gather(*map(work, (redlock, other, third))), 40)
        assert witness.entered == 180
        assert witness.overlaps == 0
        await no_keys_left(five_nodes, redlock, other, third)
