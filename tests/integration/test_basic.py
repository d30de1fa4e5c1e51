"""The basic promises on one, three and five real nodes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from aioredlock_ng import AcquireTimeout, LockHeld, LockLost, LockReleased, Redlock
from tests.integration.helpers import Witness, all_up, no_keys_left, state_of
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet


@pytest.fixture(params=[1, 3, 5])
def nodes(request: pytest.FixtureRequest) -> NodeSet:
    node_set: NodeSet = request.getfixturevalue(
        {1: "one_node", 3: "three_nodes", 5: "five_nodes"}[request.param]
    )
    return node_set


async def test_a_held_lock_is_on_every_node_and_a_released_one_on_none(nodes: NodeSet) -> None:
    async with Redlock(nodes.urls, node_timeout=5.0) as redlock:
        async with redlock.lock("order", ttl=20) as lease:
            await eventually(lambda: lease.nodes == (len(nodes), len(nodes)))
            for node in nodes:
                assert node.command("GET", "order") == lease.token.encode()
                assert 15_000 < int(node.command("PTTL", "order")) <= 20_000
            assert 15 < lease.remaining() < 20
            await lease.verify()
        with pytest.raises(LockReleased):
            lease.check()
        await no_keys_left(nodes, redlock)


async def test_two_managers_exclude_each_other(nodes: NodeSet) -> None:
    async with Redlock(nodes.urls) as redlock, Redlock(nodes.urls) as other:
        witness = Witness()

        async def work(manager: Redlock, number: int) -> None:
            for _ in range(20):
                async with manager.lock(f"order:{number % 2}"):
                    with witness(str(number % 2)):
                        await asyncio.sleep(0)

        await asyncio.gather(
            *(work(manager, number) for manager in (redlock, other) for number in range(6))
        )
        assert (witness.entered, witness.overlaps) == (240, 0)
        assert redlock.stats().lost == other.stats().lost == 0
        await no_keys_left(nodes, redlock, other)


async def time_out(manager: Redlock) -> None:
    """Wait in vain for a lock, and long enough for a node that stands still for a while."""
    began = time.monotonic()
    with pytest.raises(AcquireTimeout):
        await manager.lock("order", blocking_timeout=2.5).acquire()
    assert time.monotonic() - began + 0.002 >= 2.5
    assert time.monotonic() - began < 30, "it is held for ever"


async def test_try_acquire_and_acquire_with_a_timeout_refuse_a_held_lock(nodes: NodeSet) -> None:
    async with (
        Redlock(nodes.urls, node_timeout=5.0) as redlock,
        Redlock(nodes.urls, node_timeout=5.0) as other,
        redlock.lock("order"),
    ):
        for manager in (redlock, other):
            assert await manager.lock("order").try_acquire() is None
            with pytest.raises(LockHeld) as held:
                await manager.lock("order", blocking_timeout=0).acquire()
            assert held.value.resource == "order"
        await asyncio.gather(time_out(redlock), time_out(other))
        assert await other.locked("order")
        assert (await other.inspect("order")).nodes == len(nodes)


@pytest.mark.usefixtures("no_polling")
async def test_a_waiter_gets_the_lock_when_a_remote_holder_releases(nodes: NodeSet) -> None:
    async with Redlock(nodes.urls) as redlock, Redlock(nodes.urls) as other:
        lease = await redlock.lock("order", ttl=60).acquire()
        waiting = asyncio.create_task(other.lock("order").acquire())
        await eventually(lambda: other.stats().refused > 0)
        await lease.release()
        # Told by the nodes: far sooner than the ttl, and the slow look that makes up for lost
        # messages is out of reach.
        await (await asyncio.wait_for(waiting, 20)).release()
        await no_keys_left(nodes, redlock, other)


async def test_a_waiter_gets_the_lock_when_a_remote_lease_expires(nodes: NodeSet) -> None:
    async with Redlock(nodes.urls) as redlock, Redlock(nodes.urls) as other:
        began = time.monotonic()
        lease = await redlock.lock("order", ttl=1.0).acquire()
        lease.abandon()
        waiting = asyncio.create_task(other.lock("order").acquire())
        taken = await asyncio.wait_for(waiting, 10)
        assert time.monotonic() - began > 0.99
        assert not lease.valid
        await taken.release()


async def test_renewals_keep_a_lease_alive_beyond_its_ttl(nodes: NodeSet) -> None:
    async with (
        Redlock(nodes.urls, node_timeout=3.0) as redlock,
        Redlock(nodes.urls, node_timeout=5.0) as other,
    ):
        async with redlock.lock("order", ttl=4.0) as lease:
            end = time.monotonic() + 4.5
            while time.monotonic() < end or redlock.stats().renewals < 3:
                assert await other.lock("order").try_acquire() is None
                assert lease.valid
                await asyncio.sleep(0.05)
        await no_keys_left(nodes, redlock, other)


async def test_without_renewal_a_lease_ends_and_says_so(three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls) as redlock:
        lease = await redlock.lock("order", ttl=0.4, auto_extend=False).acquire()
        await asyncio.wait_for(lease.wait_lost(), 30)
        assert lease.lost
        with pytest.raises(LockLost):
            lease.check()
        assert await lease.release() is False


async def test_several_resources_are_taken_together_or_not_at_all(three_nodes: NodeSet) -> None:
    async with (
        Redlock(three_nodes.urls, node_timeout=5.0) as redlock,
        Redlock(three_nodes.urls, node_timeout=5.0) as other,
    ):
        async with redlock.lock("b"):
            # With this ttl, a key left behind would outlive the wait below.
            assert await other.lock("a", "b", "c", ttl=60).try_acquire() is None
            await no_pending(other)
            # A node that "a b c" reached before "b" lacks "b", and its higher fence bars the
            # repair.
            await eventually(lambda: set().union(*three_nodes.keys()) == {"b"})
        async with other.lock("a", "b", "c", blocking_timeout=5):
            for name in ("a", "b", "c"):
                assert await redlock.lock(name).try_acquire() is None
        await no_keys_left(three_nodes, redlock, other)


async def test_several_resources_in_any_order_never_block_each_other_for_ever(
    three_nodes: NodeSet,
) -> None:
    async with Redlock(three_nodes.urls) as redlock, Redlock(three_nodes.urls) as other:
        witness = Witness()

        async def work(manager: Redlock, names: tuple[str, ...]) -> None:
            for _ in range(15):
                async with manager.lock(*names, ttl=30):
                    with witness("b"):
                        await asyncio.sleep(0)

        orders = [("a", "b"), ("b", "a"), ("b",), ("b", "c")]
        work_all = (work(manager, names) for manager in (redlock, other) for names in orders)
        await asyncio.wait_for(asyncio.gather(*work_all), 40)
        assert (witness.entered, witness.overlaps) == (120, 0)
        await no_keys_left(three_nodes, redlock, other)


async def test_releasing_a_stale_lease_leaves_the_newer_one_alone(three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:
        stale = await redlock.lock("order", ttl=1.2, auto_extend=False).acquire()
        newer = await redlock.lock("order", ttl=6.0).acquire()
        assert not stale.valid
        assert await stale.release() is False
        renewals = redlock.stats().renewals
        await eventually(lambda: redlock.stats().renewals > renewals)
        await newer.verify()
        assert await newer.release()


async def test_a_key_taken_over_by_force_is_a_loss_and_stays_the_new_owners(
    three_nodes: NodeSet,
) -> None:
    async def hold(redlock: Redlock) -> None:
        async with redlock.lock("order"):
            for node in three_nodes:
                node.command("SET", "order", "another's")
            await asyncio.sleep(30)

    async with Redlock(three_nodes.urls) as redlock:
        with pytest.raises(LockLost, match="no longer holds"):
            await asyncio.wait_for(hold(redlock), 20)
        assert [node.command("GET", "order") for node in three_nodes] == [b"another's"] * 3


async def test_a_forced_release_is_a_loss_to_its_holder(three_nodes: NodeSet) -> None:
    async with (
        Redlock(three_nodes.urls) as redlock,
        Redlock(three_nodes.urls, node_timeout=5.0) as operator,
    ):
        lease = await redlock.lock("order").acquire()
        await eventually(lambda: lease.nodes == (3, 3))
        assert await operator.force_release("order") >= 2
        await asyncio.wait_for(lease.wait_lost(), 20)
        with pytest.raises(LockLost):
            lease.check()


@pytest.mark.usefixtures("no_polling")
async def test_redis_pys_own_lock_and_ours_exclude_each_other(one_node: NodeSet) -> None:
    async with (
        Redis.from_url(one_node.urls[0]) as client,
        Redlock(one_node.urls, node_timeout=5.0) as redlock,
    ):
        theirs = client.lock("order", timeout=60)
        async with redlock.lock("order"):
            assert not await theirs.acquire(blocking=False)
        assert await theirs.acquire(blocking=False)
        assert await redlock.lock("order").try_acquire() is None
        waiting = asyncio.create_task(redlock.lock("order").acquire())
        await eventually(lambda: redlock.stats().refused > 1)
        await theirs.release()
        lease = await asyncio.wait_for(waiting, 20)
        assert not await theirs.acquire(blocking=False)
        await lease.release()
        await no_keys_left(one_node, redlock)


async def test_a_plain_set_nx_px_on_a_quorum_and_ours_exclude_each_other(
    three_nodes: NodeSet,
) -> None:
    async with Redlock(three_nodes.urls, node_timeout=5.0) as redlock:
        for node in list(three_nodes)[:2]:
            assert node.command("SET", "order", "theirs", "NX", "PX", "60000") == b"OK"
        assert await redlock.lock("order").try_acquire() is None
        # However long that took, from here they live a while.
        for node in list(three_nodes)[:2]:
            assert node.command("PEXPIRE", "order", "500") == b"1"
        async with redlock.lock("order", ttl=60, blocking_timeout=20) as lease:
            # The second of theirs may have gone a moment after the first, too late to be ours.
            assert lease.nodes[0] >= 2
            taken = [
                node.command("SET", "order", "theirs", "NX", "PX", "300") for node in three_nodes
            ]
            assert taken.count(b"OK") <= 1
        await eventually(lambda: three_nodes.keys() == [set()] * 3)
        await no_keys_left(three_nodes, redlock)


@pytest.mark.usefixtures("no_polling")
async def test_a_foreign_key_without_expiry_is_waited_for_until_it_is_deleted(
    three_nodes: NodeSet,
) -> None:
    async with Redlock(three_nodes.urls, node_timeout=5.0) as redlock:
        for node in three_nodes:
            node.command("SET", "order", "theirs")
        waiting = asyncio.create_task(redlock.lock("order").acquire())
        await eventually(lambda: redlock.stats().refused > 0)
        assert (await redlock.inspect("order")).remaining == float("inf")
        for node in three_nodes:
            node.command("DEL", "order")
        await (await asyncio.wait_for(waiting, 20)).release()


@pytest.mark.parametrize("kind", ["SET NX PX", "redis-py's Lock"])
async def test_a_foreign_client_gets_no_lock_beside_readers_and_gets_it_after_they_left(
    three_nodes: NodeSet, kind: str
) -> None:
    async def theirs() -> list[bool]:
        taken = []
        for node in three_nodes:
            if kind == "SET NX PX":
                taken.append(
                    await asyncio.to_thread(
                        node.command, "SET", "catalog", "theirs", "NX", "PX", "60000"
                    )
                    == b"OK"
                )
            else:
                async with Redis.from_url(node.url) as client:
                    lock = client.lock("catalog", timeout=60.0)
                    taken.append(await lock.acquire(blocking=False, token="theirs"))
        return taken

    async with (
        Redlock(three_nodes.urls, ttl=60.0, node_timeout=5.0) as one,
        Redlock(three_nodes.urls, ttl=60.0, node_timeout=5.0) as other,
    ):
        readers = [await manager.rwlock("catalog").read().acquire() for manager in (one, other)]
        await eventually(lambda: all(lease.nodes == (3, 3) for lease in readers))
        assert await theirs() == [False] * 3
        await readers[0].release()
        await all_up(one)
        assert await theirs() == [False] * 3, "one reader is left"
        readers[1].check()
        await readers[1].release()
        await no_keys_left(three_nodes, one, other)
        assert await theirs() == [True] * 3
        assert await one.rwlock("catalog").read().try_acquire() is None
        assert [node.command("GET", "catalog") for node in three_nodes] == [b"theirs"] * 3


async def test_many_leases_share_one_connection_per_node(three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls, node_timeout=5.0) as redlock:
        before = int(three_nodes[0].info()["connected_clients"])
        await asyncio.gather(*(redlock.lock(f"order:{n}").acquire() for n in range(500)))
        assert int(three_nodes[0].info()["connected_clients"]) <= before
        assert state_of(redlock, 0) == "up"
    await no_keys_left(three_nodes)


async def no_pending(redlock: Redlock) -> None:
    await eventually(lambda: not any(node.pending for node in redlock.nodes))
