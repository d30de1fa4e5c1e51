"""Cancelled in every way on real nodes: no key outlives its owner, and no command is ever sent
twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import anyio
import pytest

from aioredlock_ng import LockNotAcquired, Redlock
from tests.integration.helpers import all_up, no_keys_left, stats_of
from tests.support.eventually import eventually
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.node_set import NodeSet


@contextlib.asynccontextmanager
async def distant(nodes: NodeSet, round_trip: float) -> AsyncIterator[Redlock]:
    """A manager whose nodes are all so far away."""
    async with contextlib.AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy(url)) for url in nodes.urls]
        redlock = await stack.enter_async_context(
            Redlock([proxy.url for proxy in proxies], ttl=60, node_timeout=5.0)
        )
        for proxy in proxies:
            proxy.delay(round_trip)
        yield redlock


@pytest.mark.parametrize("way", ["cancel", "timeout", "anyio scope"])
async def test_one_hundred_fifty_cancelled_acquires_leave_no_key(
    way: str, three_nodes: NodeSet
) -> None:
    """redis-py's Lock and pottery leave 150 here, aioredlock 7."""
    async with distant(three_nodes, 0.005) as redlock:

        async def attempt(number: int) -> None:
            lock = redlock.lock(f"order:{number}")
            # Spread over the round trip, so that every moment of it is hit.
            patience = 0.0001 + 0.008 * number / 150
            match way:
                case "timeout":
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(patience), lock:
                            await asyncio.sleep(30)
                case "anyio scope":
                    with anyio.move_on_after(patience):
                        async with lock:
                            await asyncio.sleep(30)
                case _:

                    async def hold() -> None:
                        async with lock:
                            await asyncio.sleep(30)

                    task = asyncio.create_task(hold())
                    await asyncio.sleep(patience)
                    task.cancel()
                    await asyncio.wait([task])

        await asyncio.gather(*map(attempt, range(150)))
        assert not redlock.leases
        await no_keys_left(three_nodes, redlock)
        assert stats_of(three_nodes, 0, "set") > 0


async def test_a_body_cancelled_by_an_anyio_scope_releases(three_nodes: NodeSet) -> None:
    """redis-py's and coredis' release is not shielded: the scope cancels that too, and the key
    stays.
    """
    async with distant(three_nodes, 0.005) as redlock:
        with anyio.CancelScope() as scope:
            async with redlock.lock("order"):
                scope.cancel()
                await anyio.sleep(30)
        await no_keys_left(three_nodes, redlock)


async def test_a_body_in_a_failing_task_group_releases(three_nodes: NodeSet) -> None:
    async def fail() -> None:
        raise ValueError("the other task failed")

    async def together(redlock: Redlock, inside: asyncio.Event) -> None:
        async def hold() -> None:
            async with redlock.lock("order"):
                inside.set()
                await anyio.sleep(30)

        async with anyio.create_task_group() as group:
            group.start_soon(hold)
            await inside.wait()
            group.start_soon(fail)

    async with distant(three_nodes, 0.005) as redlock:
        with pytest.raises(ExceptionGroup):
            await together(redlock, asyncio.Event())
        await no_keys_left(three_nodes, redlock)


async def test_a_release_cancelled_again_and_again_is_executed(three_nodes: NodeSet) -> None:
    async with distant(three_nodes, 0.05) as redlock:
        for cancellations in range(1, 6):
            lease = await redlock.lock("order").acquire()
            releasing = asyncio.create_task(lease.release())
            for _ in range(cancellations):
                await asyncio.sleep(0)
                releasing.cancel()
            await asyncio.wait([releasing], timeout=30)
            assert releasing.cancelled()
            assert [node.command("EXISTS", "order") for node in three_nodes].count(b"0") >= 2
        await no_keys_left(three_nodes, redlock)


async def test_leaving_early_at_quorum_leaves_no_orphan_in_2000_cycles(five_nodes: NodeSet) -> None:
    """Early return over a connection pool leaves 100 here: a release overtakes its own acquire."""
    async with Redlock(five_nodes.urls) as redlock:

        async def work(number: int) -> None:
            for cycle in range(100):
                async with redlock.lock(f"order:{number}:{cycle}", ttl=60):
                    pass

        await asyncio.gather(*map(work, range(20)))
        await no_keys_left(five_nodes, redlock)
        assert redlock.stats().acquired == 2000


async def test_no_command_is_ever_sent_twice(three_nodes: NodeSet) -> None:
    """redis-py's own retry sends SET NX twice; the second answer is no, and the lock is held by
    nobody who knows.
    """
    async with contextlib.AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy(url)) for url in three_nodes.urls]
        # Neither a node that is late nor a label may change the number of commands.
        redlock = await stack.enter_async_context(
            Redlock([proxy.url for proxy in proxies], node_timeout=5.0, owner=False)
        )
        before = [stats_of(three_nodes, index, "set") for index in range(3)]
        for number in range(60):
            await all_up(redlock)
            proxy = proxies[number // 10 % 3]
            if cut := number % 10 == 5:
                # Executed by the server, and never answered.
                proxy.to_client.stall()
            async with redlock.lock(f"order:{number}", blocking_timeout=30):
                if cut:
                    await eventually(lambda held=proxy.to_client: held.held)
            if cut:
                proxy.cut()
                proxy.flow()
            proxies[number % 3].delay(0.002 * (number % 2))
        attempts = redlock.stats().attempts
        await no_keys_left(three_nodes, redlock)
        for index in range(3):
            assert stats_of(three_nodes, index, "set") - before[index] == attempts


async def test_a_command_whose_reply_was_lost_is_not_sent_again(one_node: NodeSet) -> None:
    async with Proxy(one_node.urls[0]) as proxy, Redlock([proxy.url], node_timeout=0.1) as redlock:
        before = stats_of(one_node, 0, "set")
        proxy.to_client.stall()
        with pytest.raises(LockNotAcquired):
            await redlock.lock("order", ttl=60).try_acquire()
        await eventually(lambda: stats_of(one_node, 0, "set") == before + 1)
        proxy.flow()
        await no_keys_left(one_node, redlock)
        assert stats_of(one_node, 0, "set") == before + 1
        assert redlock.nodes[0].connections == 1, "a timeout must never close a connection"
