"""Connections that break, stall or lag: an unknown outcome is released on reconnect, and nothing is
ever sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockNotAcquired, QuorumUnreachable, Redlock
from aioredlock_ng._nodes.channel import sending
from aioredlock_ng.events import NodeSuspect
from tests.integration.helpers import Witness, no_keys_left, state_of, stats_of
from tests.support.eventually import eventually
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from aioredlock_ng.events import Event
    from tests.support.node_set import NodeSet


@pytest.mark.parametrize("end", ["timeout", "cancel"])
async def test_an_acquire_cut_after_it_was_executed_is_released_on_reconnect(
    one_node: NodeSet, end: str
) -> None:
    async with (
        Proxy(one_node.urls[0]) as proxy,
        Redlock([proxy.url], ttl=60, node_timeout=20.0) as redlock,
    ):
        sets = stats_of(one_node, 0, "set")
        proxy.to_client.stall()
        attempt = asyncio.create_task(redlock.lock("order", ttl=60, blocking_timeout=0).acquire())
        await eventually(lambda: one_node.keys() == [{"order"}])
        await proxy.refuse()
        if end == "cancel":
            attempt.cancel()
        with pytest.raises((asyncio.CancelledError, QuorumUnreachable)) as caught:
            await attempt
        assert "unknown" in str(caught.value) or end == "cancel"
        await eventually(lambda: state_of(redlock, 0) == "down")
        assert redlock.nodes[0].owed == 1
        proxy.flow()
        await proxy.accept()
        await no_keys_left(one_node, redlock)
        assert stats_of(one_node, 0, "set") == sets + 1, "an acquire was sent twice"


async def test_an_acquire_cut_before_it_arrived_leaves_nothing(one_node: NodeSet) -> None:
    async with Proxy(one_node.urls[0]) as proxy, Redlock([proxy.url], node_timeout=5.0) as redlock:
        sets = stats_of(one_node, 0, "set")
        proxy.to_server.stall()
        attempt = asyncio.create_task(redlock.lock("order", ttl=60).try_acquire())
        await eventually(lambda: proxy.to_server.held)
        proxy.cut()
        with pytest.raises(QuorumUnreachable):
            await attempt
        proxy.flow()
        await no_keys_left(one_node, redlock)
        assert stats_of(one_node, 0, "set") == sets


async def test_a_release_cut_on_its_way_is_sent_again_on_reconnect(three_nodes: NodeSet) -> None:
    async with (
        Proxy(three_nodes.urls[0]) as proxy,
        Redlock([proxy.url, *three_nodes.urls[1:]]) as redlock,
    ):
        lease = await redlock.lock("order", ttl=60).acquire()
        await eventually(lambda: lease.nodes == (3, 3))
        proxy.to_server.stall()
        assert await lease.release()
        await eventually(lambda: proxy.to_server.held)
        proxy.cut()
        proxy.flow()
        await no_keys_left(three_nodes, redlock)


async def test_a_lease_released_while_a_node_is_away_is_released_there_on_its_return(
    three_nodes: NodeSet,
) -> None:
    async with (
        Proxy(three_nodes.urls[0]) as proxy,
        Redlock([proxy.url, *three_nodes.urls[1:]]) as redlock,
    ):
        lease = await redlock.lock("order", ttl=60).acquire()
        await eventually(lambda: lease.nodes == (3, 3))
        await proxy.refuse()
        await eventually(lambda: state_of(redlock, 0) == "down")
        assert await lease.release()
        assert redlock.nodes[0].owed == 1
        await eventually(lambda: three_nodes.keys() == [{"order"}, set(), set()])
        await proxy.accept()
        await no_keys_left(three_nodes, redlock)


@pytest.mark.slow
async def test_clients_killed_by_the_server_under_load_leave_no_key_and_no_overlap(
    three_nodes: NodeSet,
) -> None:
    async with Redlock(three_nodes.urls) as redlock, Redlock(three_nodes.urls) as other:
        running, witness = True, Witness()

        async def work(manager: Redlock, number: int) -> None:
            while running:
                with contextlib.suppress(LockNotAcquired):
                    async with manager.lock(f"order:{number}", ttl=30, blocking_timeout=0.5):
                        with witness(str(number)):
                            await asyncio.sleep(0)

        workers = [
            asyncio.create_task(work(m, n))
            for m in (redlock, other)
            for n in range(5)
            for _ in range(3)
        ]
        for kill in range(12):
            entered = witness.entered
            await asyncio.to_thread(
                three_nodes[kill % 3].command, "CLIENT", "KILL", "SKIPME", "yes"
            )
            await eventually(lambda entered=entered: witness.entered > entered + 20, 20)
            await eventually(
                lambda kill=kill: state_of(redlock, kill % 3) == state_of(other, kill % 3) == "up",
                20,
            )
        running = False
        await asyncio.gather(*workers)
        assert witness.overlaps == 0
        await no_keys_left(three_nodes, redlock, other)
        assert all(node.connections > 3 for node in redlock.nodes)


async def test_nodes_five_milliseconds_away_serve(three_nodes: NodeSet) -> None:
    async with contextlib.AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy(url)) for url in three_nodes.urls]
        redlock = await stack.enter_async_context(
            Redlock([proxy.url for proxy in proxies], node_timeout=0.5)
        )
        for proxy in proxies:
            proxy.delay(0.005)
        for number in range(20):
            async with redlock.lock(f"order:{number}") as lease:
                assert lease.valid
        await no_keys_left(three_nodes, redlock)


async def test_a_minority_slower_than_the_node_timeout_costs_nothing(three_nodes: NodeSet) -> None:
    async with (
        Proxy(three_nodes.urls[2]) as proxy,
        Redlock([*three_nodes.urls[:2], proxy.url], node_timeout=0.5) as redlock,
    ):
        proxy.delay(0.6)
        took = []
        for number in range(20):
            began = time.monotonic()
            async with redlock.lock(f"order:{number}"):
                pass
            took.append(time.monotonic() - began)
        assert sorted(took)[10] < 0.5
        await no_keys_left(three_nodes, redlock)


async def test_a_majority_slower_than_the_node_timeout_is_unreachable_and_left_clean(
    three_nodes: NodeSet,
) -> None:
    async with (
        Proxy(three_nodes.urls[1]) as near,
        Proxy(three_nodes.urls[2]) as far,
        Redlock([three_nodes.urls[0], near.url, far.url], node_timeout=0.1) as redlock,
    ):
        near.delay(0.6)
        far.delay(0.6)
        with pytest.raises(QuorumUnreachable, match="no answer in time"):
            await redlock.lock("order", ttl=60).try_acquire()
        await no_keys_left(three_nodes, redlock)


async def test_locks_work_while_a_nodes_network_stalls_and_no_key_is_left_afterwards(
    three_nodes: NodeSet,
) -> None:
    async with (
        Proxy(three_nodes.urls[0]) as proxy,
        Redlock([proxy.url, *three_nodes.urls[1:]], node_timeout=0.05) as redlock,
    ):
        proxy.stall()

        async def suspected() -> bool:
            async with redlock.lock("order", ttl=30):
                return state_of(redlock, 0) == "suspect"

        await eventually(suspected)
        proxy.flow()
        await no_keys_left(three_nodes, redlock)
        assert redlock.nodes[0].connections == 1


async def test_scripts_flushed_under_load_are_sent_again_in_full(three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls) as redlock, Redlock(three_nodes.urls) as other:
        running, witness = True, Witness()

        async def work(manager: Redlock, number: int) -> None:
            while running:
                # Sooner than what nobody holds expires.
                async with manager.lock(f"order:{number}", ttl=60, blocking_timeout=20):
                    with witness(str(number)):
                        await asyncio.sleep(0)

        workers = [
            asyncio.create_task(work(m, n))
            for m in (redlock, other)
            for n in range(4)
            for _ in range(3)
        ]
        for flush in range(30):
            entered = witness.entered
            await asyncio.to_thread(three_nodes[flush % 3].command, "SCRIPT", "FLUSH")
            await eventually(lambda entered=entered: witness.entered > entered + 20, 20)
        running = False
        await asyncio.gather(*workers)
        assert witness.overlaps == 0
        await no_keys_left(three_nodes, redlock, other)


async def test_renewals_survive_flushed_scripts(three_nodes: NodeSet) -> None:
    async with (
        Redlock(three_nodes.urls, node_timeout=5.0) as redlock,
        redlock.lock("order", ttl=6.0) as lease,
    ):
        for _ in range(2):
            renewals = redlock.stats().renewals
            for node in three_nodes:
                node.command("SCRIPT", "FLUSH")
            await eventually(lambda renewals=renewals: redlock.stats().renewals > renewals)
        assert redlock.stats().renewals_failed == 0
        assert lease.valid


@pytest.mark.parametrize("by", ["verify", "watch"])
async def test_a_lease_survives_a_downgrade_that_overtakes_its_own_check_after_a_script_flush(
    three_nodes: NodeSet, by: str
) -> None:
    options = {"ttl": 60.0, "node_timeout": 5.0}
    async with (
        Redlock(three_nodes.urls, **options) as redlock,
        Redlock(three_nodes.urls, **options) as other,
    ):
        lease = await redlock.rwlock("order").write().acquire()
        await lease.verify()
        for node in three_nodes:
            node.command("SCRIPT", "FLUSH")
        # The nodes now have the script of the downgrade, but not that of the check.
        async with other.rwlock("other").read() as reader:
            await reader.extend()
        check = asyncio.create_task(lease.verify()) if by == "verify" else None
        if check is None:
            redlock.engine().extender.watcher.watch([lease._record])
        else:
            await asyncio.sleep(0)
        await lease.downgrade()
        if check is not None:
            await check
        await lease.verify()
        assert lease.valid
        await lease.release()
        await no_keys_left(three_nodes, redlock, other)


@pytest.mark.slow
async def test_a_node_that_falls_too_far_behind_counts_as_silent_though_it_answers(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client keeps the calls that a slow node has not answered. Their number has a bound.

    Without the bound, memory would grow for as long as the node is slower than the others.
    """
    # Few enough for a machine that is busy: calls of one tick are sent as one.
    monkeypatch.setattr(sending, "MAX_PENDING", 10)
    heard: list[Event] = []
    async with (
        Proxy(three_nodes.urls[0]) as proxy,
        Redlock(
            [proxy.url, *three_nodes.urls[1:]], node_timeout=0.5, sinks=[heard.append]
        ) as redlock,
    ):

        async def work(number: int) -> None:
            while True:
                async with redlock.lock(f"order:{number}"):
                    await asyncio.sleep(0.001)

        # Every answer comes well before a silent node would be doubted.
        proxy.delay(0.4)
        jobs = [asyncio.create_task(work(number)) for number in range(50)]
        await eventually(lambda: any(isinstance(event, NodeSuspect) for event in heard))
        assert state_of(redlock, 1) == state_of(redlock, 2) == "up"
        for job in jobs:
            job.cancel()
        await asyncio.wait(jobs)
        await eventually(lambda: state_of(redlock, 0) == "up")
