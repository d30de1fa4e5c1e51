"""Nodes that hang (SIGSTOP): a minority costs nothing, a majority is told, and nothing is left
behind when they wake.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import AcquireTimeout, LockLost, QuorumUnreachable, Redlock
from tests.integration.helpers import all_up, no_keys_left, state_of, stats_of
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.faults


async def test_with_a_minority_hung_every_acquire_succeeds_at_once(five_nodes: NodeSet) -> None:
    async with Redlock(five_nodes.urls, node_timeout=5.0) as redlock:
        five_nodes.pause(0)
        five_nodes.pause(3)
        took = []
        for number in range(100):
            began = time.monotonic()
            async with redlock.lock(f"order:{number}") as lease:
                assert lease.valid
            took.append(time.monotonic() - began)
        assert sorted(took)[50] < 0.5, "a hung minority was waited for"
        assert sorted(took)[90] < 1.0, "a hung minority was waited for now and then"
        five_nodes.resume(0)
        five_nodes.resume(3)
        await no_keys_left(five_nodes, redlock)


async def test_a_hung_node_that_wakes_executes_the_late_acquire_and_then_its_release(
    five_nodes: NodeSet,
) -> None:
    async with Redlock(five_nodes.urls, node_timeout=5.0) as redlock:
        before = stats_of(five_nodes, 4, "set")
        five_nodes.pause(4)
        for number in range(20):
            async with redlock.lock(f"order:{number}"):
                pass
        assert redlock.nodes[4].pending == 40
        five_nodes.resume(4)
        await no_keys_left(five_nodes, redlock)
        assert stats_of(five_nodes, 4, "set") == before + 20


async def test_a_lease_gains_the_late_grant_of_a_node_that_wakes(three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls) as redlock:
        three_nodes.pause(1)
        async with redlock.lock("order") as lease:
            assert lease.nodes == (2, 3)
            three_nodes.resume(1)
            await eventually(lambda: lease.nodes == (3, 3))
        await no_keys_left(three_nodes, redlock)


@pytest.mark.parametrize("blocking_timeout", [0, 0.5])
async def test_an_acquire_fails_in_time_while_a_majority_hangs(
    five_nodes: NodeSet, blocking_timeout: float
) -> None:
    async with Redlock(five_nodes.urls, node_timeout=0.1) as redlock:
        for index in (0, 1, 2):
            five_nodes.pause(index)
        began = time.monotonic()
        with pytest.raises((QuorumUnreachable, AcquireTimeout)) as caught:
            await redlock.lock("order", ttl=30, blocking_timeout=blocking_timeout).acquire()
        took = time.monotonic() - began
        assert took < blocking_timeout + 10.0, "they never answer"
        # A loop's timers may be a millisecond early.
        assert blocking_timeout - 0.01 <= caught.value.elapsed <= took
        assert len(caught.value.votes) == 5
        assert five_nodes.urls[0].partition("//")[2] in str(caught.value)
        for index in (0, 1, 2):
            five_nodes.resume(index)
        await no_keys_left(five_nodes, redlock)
        async with redlock.lock("order", blocking_timeout=5):
            pass


async def test_a_waiter_gets_the_lock_when_a_hung_majority_wakes(three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls) as redlock:
        three_nodes.pause(0)
        three_nodes.pause(1)
        waiting = asyncio.create_task(redlock.lock("order").acquire())
        await eventually(lambda: state_of(redlock, 0) == state_of(redlock, 1) == "suspect")
        assert not waiting.done()
        three_nodes.resume(0)
        three_nodes.resume(1)
        lease = await asyncio.wait_for(waiting, 30)
        assert await lease.release()
        await no_keys_left(three_nodes, redlock)


async def test_a_cancelled_acquire_on_hung_nodes_leaves_no_key(three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:
        for index in range(3):
            three_nodes.pause(index)
        waiting = [
            asyncio.create_task(redlock.lock(f"order:{n}", ttl=30).acquire()) for n in range(30)
        ]
        await eventually(lambda: all(node.pending >= 30 for node in redlock.nodes))
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting, timeout=10)
        assert all(task.cancelled() for task in waiting)
        for index in range(3):
            three_nodes.resume(index)
        await no_keys_left(three_nodes, redlock)
        assert stats_of(three_nodes, 0, "set") >= 30


async def test_the_body_is_cancelled_before_its_keys_can_expire_while_all_nodes_hang(
    five_nodes: NodeSet,
) -> None:
    paused_at = told_at = 0.0

    async def hold(redlock: Redlock) -> None:
        nonlocal paused_at, told_at
        async with redlock.lock("order", ttl=8.0) as lease:
            for index in range(5):
                five_nodes.pause(index)
            paused_at = time.monotonic()
            try:
                await asyncio.sleep(30)
            finally:
                told_at = time.monotonic()
                assert not lease.valid

    # Half of the ttl is given up for drift, so that a busy machine cannot blur what is measured.
    async with Redlock(five_nodes.urls, drift_factor=0.5) as redlock:
        began = time.monotonic()
        with pytest.raises(LockLost, match="deadline"):
            await hold(redlock)
        # Where pausing took a third of the ttl, its keys may have been renewed meanwhile.
        renewed_at = began if paused_at - began < 2.5 else paused_at
        assert began + 3.9 < told_at < renewed_at + 8.0, "told after the keys may have expired"


async def test_leases_released_while_all_nodes_hang_do_not_block_and_leave_no_key(
    three_nodes: NodeSet,
) -> None:
    async with Redlock(three_nodes.urls, node_timeout=0.1, ttl=60) as redlock:
        leases = [await redlock.lock(f"order:{number}").acquire() for number in range(10)]
        for index in range(3):
            three_nodes.pause(index)
        began = time.monotonic()
        await asyncio.gather(*(lease.release() for lease in leases))
        assert time.monotonic() - began < 5
        for index in range(3):
            three_nodes.resume(index)
        await no_keys_left(three_nodes, redlock)


async def test_closing_while_nodes_hang_takes_bounded_time_and_leaves_no_key(
    three_nodes: NodeSet,
) -> None:
    redlock = await Redlock(three_nodes.urls, close_timeout=0.5).open()
    for number in range(10):
        await redlock.lock(f"order:{number}", ttl=60).acquire()
    three_nodes.pause(2)
    began = time.monotonic()
    await redlock.aclose()
    assert time.monotonic() - began < 5
    three_nodes.resume(2)
    await eventually(lambda: three_nodes.keys() == [set()] * 3)


async def test_the_backlog_of_a_hung_node_stays_bounded_and_the_node_is_used_again(
    three_nodes: NodeSet,
) -> None:
    async with Redlock(three_nodes.urls, node_timeout=0.05) as redlock:
        running = True

        async def work(number: int) -> int:
            cycles = 0
            while running:
                async with redlock.lock(f"order:{number}"):
                    cycles += 1
            return cycles

        workers = [asyncio.create_task(work(number)) for number in range(20)]
        three_nodes.pause(0)
        await eventually(lambda: state_of(redlock, 0) == "suspect", 10)
        acquired = redlock.stats().acquired
        # Locks that were held when the node became suspect are still released on it.
        most = redlock.nodes[0].pending + 20
        await eventually(lambda: redlock.stats().acquired > acquired + 2000, 30)
        assert redlock.nodes[0].pending <= most
        assert redlock.nodes[0].owed == 0
        assert state_of(redlock, 0) == "suspect"
        assert "no answer" in redlock.nodes[0].reason
        three_nodes.resume(0)
        await eventually(lambda: state_of(redlock, 0) == "up")
        running = False
        await asyncio.gather(*workers)
        await all_up(redlock)
        assert redlock.nodes[0].connections == 1, "a hung node must not be reconnected"
        async with redlock.lock("order") as lease:
            await eventually(lambda: lease.nodes == (3, 3))
        await no_keys_left(three_nodes, redlock)


@pytest.mark.parametrize("hung", [1, 2])
async def test_opening_does_not_wait_for_a_hung_minority(five_nodes: NodeSet, hung: int) -> None:
    for index in range(hung):
        five_nodes.pause(index)
    redlock = Redlock(five_nodes.urls, connect_timeout=10)
    began = time.monotonic()
    async with redlock:
        assert time.monotonic() - began < 5
        async with redlock.lock("order") as lease:
            await eventually(lambda: lease.nodes == (5 - hung, 5))
        for index in range(hung):
            five_nodes.resume(index)
        await all_up(redlock)
        async with redlock.lock("order") as lease:
            await eventually(lambda: lease.nodes == (5, 5))


async def test_opening_on_a_hung_majority_is_bounded_and_it_serves_once_they_wake(
    three_nodes: NodeSet,
) -> None:
    three_nodes.pause(0)
    three_nodes.pause(1)
    began = time.monotonic()
    async with Redlock(three_nodes.urls, connect_timeout=0.3) as redlock:
        assert time.monotonic() - began < 10, "they never answer"
        with pytest.raises(QuorumUnreachable, match=r"within 0\.3 s"):
            await redlock.lock("order").try_acquire()
        waiting = asyncio.create_task(redlock.lock("order").acquire())
        three_nodes.resume(0)
        three_nodes.resume(1)
        assert await (await asyncio.wait_for(waiting, 30)).release()
