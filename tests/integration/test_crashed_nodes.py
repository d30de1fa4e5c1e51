"""Nodes and processes that die (SIGKILL): the rest goes on, what comes back is used again, what
died is succeeded.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockLost, QuorumUnreachable, Redlock
from tests.integration.helpers import SHORT_GUARD, Witness, all_up, no_keys_left, program, state_of
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.faults


@pytest.mark.slow
@pytest.mark.parametrize("dead", [pytest.param(1, marks=pytest.mark.full), 2])
async def test_locks_work_under_load_while_a_minority_is_killed_and_restarted(
    five_nodes: NodeSet, dead: int
) -> None:
    async with Redlock(five_nodes.urls, **SHORT_GUARD) as redlock:
        running, witness = True, Witness()

        async def work(number: int) -> None:
            while running:
                async with redlock.lock(f"order:{number % 5}"):
                    with witness(str(number % 5)):
                        await asyncio.sleep(0)

        workers = [asyncio.create_task(work(number)) for number in range(15)]
        await eventually(lambda: witness.entered > 100)
        for index in range(dead):
            await asyncio.to_thread(five_nodes.crash, index)
        await eventually(lambda: all(state_of(redlock, index) == "down" for index in range(dead)))
        entered = witness.entered
        await eventually(lambda: witness.entered > entered + 300)
        for index in range(dead):
            await asyncio.to_thread(five_nodes.restart, index)
        await eventually(lambda: all(state_of(redlock, index) == "up" for index in range(5)))
        running = False
        await asyncio.gather(*workers)
        assert witness.overlaps == 0
        assert all(redlock.nodes[index].connections == 2 for index in range(dead))
        async with redlock.lock("order") as lease:
            await eventually(lambda: lease.nodes == (5, 5))
        await no_keys_left(five_nodes, redlock)


async def test_the_error_for_a_killed_majority_names_the_address_of_each_node(
    three_nodes: NodeSet,
) -> None:
    async with Redlock(three_nodes.urls) as redlock:
        for index in (0, 1):
            await asyncio.to_thread(three_nodes.crash, index)
        await eventually(lambda: state_of(redlock, 0) == state_of(redlock, 1) == "down")
        with pytest.raises(QuorumUnreachable) as caught:
            await redlock.lock("order").try_acquire()
        # Decided without the third: it may have answered or not.
        assert [vote.outcome for vote in caught.value.votes[:2]] == ["failed", "failed"]
        for url in three_nodes.urls:
            assert url.partition("//")[2] in str(caught.value)


async def test_a_lease_outlives_the_crash_of_a_minority(three_nodes: NodeSet) -> None:
    async with (
        Redlock(three_nodes.urls, node_timeout=5.0) as redlock,
        redlock.lock("order", ttl=6.0) as lease,
    ):
        await asyncio.to_thread(three_nodes.crash, 2)
        renewals = redlock.stats().renewals
        # The first may have been asked for before.
        await eventually(lambda: redlock.stats().renewals > renewals + 1)
        assert lease.valid
        await lease.verify()
        assert lease.nodes == (2, 3)


async def test_a_holder_is_notified_of_the_loss_when_a_majority_comes_back_empty(
    three_nodes: NodeSet,
) -> None:
    async def hold(redlock: Redlock) -> None:
        async with redlock.lock("order", ttl=30):
            for index in (0, 1):
                await asyncio.to_thread(three_nodes.restart, index)
            await asyncio.sleep(30)

    async with Redlock(three_nodes.urls) as redlock:
        with pytest.raises(LockLost, match="no longer holds"):
            await hold(redlock)


@pytest.mark.slow
async def test_nodes_that_come_up_after_opening_are_used(five_nodes: NodeSet) -> None:
    for index in range(5):
        five_nodes.crash(index)
    async with Redlock(five_nodes.urls, **SHORT_GUARD) as redlock:
        with pytest.raises(QuorumUnreachable):
            await redlock.lock("order").try_acquire()
        waiting = asyncio.create_task(redlock.lock("order").acquire())
        for index in (4, 2):
            await asyncio.to_thread(five_nodes.restart, index)
        await eventually(lambda: state_of(redlock, 4) == state_of(redlock, 2) == "up")
        assert not waiting.done()
        await asyncio.to_thread(five_nodes.restart, 0)
        lease = await asyncio.wait_for(waiting, 30)
        assert lease.nodes == (3, 5)
        await lease.release()
        for index in (1, 3):
            await asyncio.to_thread(five_nodes.restart, index)
        await all_up(redlock)
        async with redlock.lock("order") as lease:
            await eventually(lambda: lease.nodes == (5, 5))


HOLDER = """
import asyncio, sys
from aioredlock_ng import Redlock

async def main():
    async with Redlock(sys.argv[1:]) as redlock, redlock.lock("order", ttl=6.0):
        print("held", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_after_a_holders_process_is_killed_the_next_one_gets_the_lock_by_expiry(
    three_nodes: NodeSet,
) -> None:
    async with Redlock(three_nodes.urls) as redlock, program(HOLDER, *three_nodes.urls) as holder:
        assert holder.stdout is not None
        assert await asyncio.wait_for(holder.stdout.readline(), 20) == b"held\n"
        waiting = asyncio.create_task(redlock.lock("order").acquire())
        renewed = await eventually(lambda: int(three_nodes[0].command("PTTL", "order")) > 0)
        assert renewed
        holder.kill()
        await holder.wait()
        killed_at = time.monotonic()
        told = [asyncio.to_thread(node.command, "PTTL", "order") for node in three_nodes]
        left = [int(milliseconds) / 1000 for milliseconds in await asyncio.gather(*told)]
        told_at = time.monotonic()
        assert min(left) > 0
        lease = await asyncio.wait_for(waiting, 30)
        assert time.monotonic() - killed_at >= min(left) - 0.005
        await lease.release()
        # A node may have renewed the killed holder's key later than a majority.
        await asyncio.sleep(max(0.0, told_at + max(left) + 0.1 - time.monotonic()))
        await no_keys_left(three_nodes, redlock)
