"""Test that the end of a lock wakes a waiter on real servers, whichever command ends the lock.

In tests with `no_polling`, the next refresh would come only after the test has failed.
"""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

import pytest
import redis

from aioredlock_ng import Redlock
from aioredlock_ng.events import NodeDegraded
from tests.integration.helpers import SHORT_GUARD, all_up, no_keys_left, program, stats_of
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng import Lease
    from aioredlock_ng.events import Event
    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

WITHIN = 30.0
"""Seconds for a wake-up on a machine that is busy with other things."""

KEEPS = "600000"


async def sleeping(redlock: Redlock, name: str) -> asyncio.Task[Lease]:
    """A waiter that has been refused by every node and sleeps."""
    attempts = redlock.stats().attempts
    waiting = asyncio.create_task(redlock.lock(name).acquire())
    await eventually(lambda: redlock.stats().attempts > attempts)
    await eventually(lambda: not any(node.pending for node in redlock.nodes))
    return waiting


async def served(waiting: asyncio.Task[Lease]) -> None:
    lease = await asyncio.wait_for(waiting, WITHIN)
    assert await lease.release() is True


def occupy(nodes: NodeSet, name: str) -> None:
    for node in nodes:
        node.command("SET", name, "somebody", "PX", KEEPS)


ENDS: dict[str, Callable[[NodeSet], object]] = {
    "DEL": lambda nodes: [node.command("DEL", "order") for node in nodes],
    "UNLINK": lambda nodes: [node.command("UNLINK", "order") for node in nodes],
    "FLUSHALL": lambda nodes: [node.command("FLUSHALL") for node in nodes],
    "FLUSHDB": lambda nodes: [node.command("FLUSHDB") for node in nodes],
    "RENAME": lambda nodes: [node.command("RENAME", "order", "old order") for node in nodes],
    "PEXPIRE 1": lambda nodes: [node.command("PEXPIRE", "order", "1") for node in nodes],
}


@pytest.mark.usefixtures("no_polling")
@pytest.mark.parametrize("how", ENDS)
async def test_a_lock_ended_by_an_operator_wakes_a_waiter(how: str, three_nodes: NodeSet) -> None:
    occupy(three_nodes, "order")
    # Flushed, the nodes are quarantined before they grant it, and the end of that must wake it up
    # too.
    async with Redlock(three_nodes.urls, **SHORT_GUARD) as redlock:
        waiting = await sleeping(redlock, "order")
        await asyncio.to_thread(ENDS[how], three_nodes)
        await served(waiting)


@pytest.mark.usefixtures("no_polling")
async def test_a_release_by_redis_pys_own_lock_wakes_a_waiter(three_nodes: NodeSet) -> None:
    clients = [redis.Redis.from_url(url) for url in three_nodes.urls]
    locks = [client.lock("order", timeout=600, thread_local=False) for client in clients]
    try:
        for lock in locks:
            assert lock.acquire(blocking=False)
        async with Redlock(three_nodes.urls) as redlock:
            waiting = await sleeping(redlock, "order")
            for lock in locks:
                await asyncio.to_thread(lock.release)
            await served(waiting)
    finally:
        for client in clients:
            client.close()


@pytest.mark.usefixtures("no_polling")
async def test_an_evicted_lock_wakes_a_waiter(start_server: Callable[..., LocalServer]) -> None:
    server = start_server(
        ["--maxmemory", "4mb", "--maxmemory-policy", "volatile-lru", "--maxmemory-samples", "10"]
    )
    server.command("SET", "order", "somebody", "PX", KEEPS)
    async with Redlock([server.url]) as redlock:
        waiting = await sleeping(redlock, "order")
        # Nothing else can expire, so the lock is what goes to make room.
        script = (
            "for i = 1, 40 do redis.call('SET', ARGV[1] .. ':' .. i, string.rep('x', 10000)) end"
        )

        async def fill() -> bool:
            fill.number += 1  # type: ignore[attr-defined]
            try:
                await asyncio.to_thread(
                    server.command, "EVAL", script, "0", f"filler:{fill.number}"
                )  # type: ignore[attr-defined]
            except RuntimeError:
                return True
            return int(server.info()["evicted_keys"]) > 0

        fill.number = 0  # type: ignore[attr-defined]
        await eventually(fill, WITHIN)
        assert int(server.info()["evicted_keys"]) > 0
        for number in range(1, fill.number + 1):  # type: ignore[attr-defined]
            for part in range(1, 41):
                server.command("DEL", f"filler:{number}:{part}")
        await served(waiting)


HOLDER = """
import asyncio, sys
from aioredlock_ng import Redlock

async def main():
    async with Redlock(sys.argv[1:]) as redlock, redlock.lock("order", ttl=4.0):
        print("held", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.usefixtures("no_polling")
async def test_a_killed_holders_lock_wakes_a_waiter_when_it_expires(three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls) as redlock, program(HOLDER, *three_nodes.urls) as holder:
        assert holder.stdout is not None
        assert await asyncio.wait_for(holder.stdout.readline(), 20) == b"held\n"
        waiting = await sleeping(redlock, "order")
        holder.send_signal(signal.SIGKILL)
        await holder.wait()
        # Renewals have moved the end since the waiter asked, and the servers told it each time.
        began = time.monotonic()
        await served(waiting)
        assert time.monotonic() - began < WITHIN


async def test_a_foreign_pexpire_on_a_held_lock_is_no_loss(three_nodes: NodeSet) -> None:
    async with (
        Redlock(three_nodes.urls, node_timeout=5.0) as redlock,
        redlock.lock("order", ttl=30) as lease,
    ):
        for _ in range(20):
            for node in three_nodes:
                assert await asyncio.to_thread(node.command, "PEXPIRE", "order", "60000") == b"1"
        await lease.verify()
        assert lease.valid
        assert redlock.stats().lost == 0


@pytest.mark.parametrize("stale", range(3))
async def test_a_stale_key_on_one_node_keeps_no_client_out(
    stale: int, three_nodes: NodeSet
) -> None:
    """The waiter does not need the node that still has the key: a majority notifies it."""
    occupy(three_nodes, "order")
    async with Redlock(three_nodes.urls) as redlock:
        waiting = await sleeping(redlock, "order")
        for index, node in enumerate(three_nodes):
            if index != stale:
                await asyncio.to_thread(node.command, "DEL", "order")
        await served(waiting)
        assert three_nodes[stale].command("GET", "order") == b"somebody"


@pytest.mark.usefixtures("no_polling")
@pytest.mark.parametrize("how", ["reconnected", "restarted"])
async def test_a_deletion_missed_while_connections_were_cut_wakes_a_waiter(
    how: str, start_server: Callable[..., LocalServer]
) -> None:
    servers = [start_server() for _ in range(3)]
    for server in servers:
        server.command("SET", "order", "somebody", "PX", KEEPS)
    async with Redlock([server.url for server in servers], **SHORT_GUARD) as redlock:
        waiting = await sleeping(redlock, "order")
        for server in servers:
            if how == "restarted":
                await asyncio.to_thread(server.restart)
            else:
                # Cut and freed in one go: nobody is connected who could be told.
                script = "redis.call('CLIENT', 'KILL', 'TYPE', 'pubsub') redis.call('DEL', 'order')"
                try:
                    await asyncio.to_thread(server.command, "EVAL", script, "0")
                except (OSError, RuntimeError):
                    await asyncio.to_thread(server.command, "CLIENT", "KILL", "SKIPME", "yes")
                    await asyncio.to_thread(server.command, "DEL", "order")
        await served(waiting)


async def untracked(
    start_server: Callable[..., LocalServer], count: int
) -> tuple[list[LocalServer], list[str]]:
    servers = [start_server() for _ in range(count)]
    for server in servers:
        server.command(
            "ACL", "SETUSER", "locks", "on", ">word", "~*", "&*", "+@all", "-client|tracking"
        )
    return servers, [f"redis://locks:word@{server.address}" for server in servers]


async def test_a_foreign_deletion_without_tracking_is_seen_at_the_next_poll(
    start_server: Callable[..., LocalServer],
) -> None:
    servers, urls = await untracked(start_server, 3)
    for server in servers:
        server.command("SET", "order", "somebody", "PX", KEEPS)
    async with Redlock(urls, node_timeout=5.0) as redlock:
        waiting = await sleeping(redlock, "order")
        for server in servers:
            server.command("DEL", "order")
        await served(waiting)
        assert redlock.stats().attempts == 2, "looks at the queue are no attempts"


@pytest.mark.usefixtures("no_polling")
async def test_a_waiter_polls_once_servers_refuse_to_track_keys_on_open_connections(
    start_server: Callable[..., LocalServer],
) -> None:
    servers = [start_server() for _ in range(3)]
    for server in servers:
        server.command("ACL", "SETUSER", "locks", "on", ">word", "~*", "&*", "+@all")
        server.command("SET", "order", "somebody", "PX", KEEPS)
    told: list[Event] = []
    urls = [f"redis://locks:word@{server.address}" for server in servers]
    async with Redlock(urls, node_timeout=5.0, sinks=[told.append]) as redlock:
        assert all(node.tracking for node in redlock.nodes)
        # Redis 6.2 cannot take away the right to a single subcommand.
        for server in servers:
            server.command("ACL", "SETUSER", "locks", "-client")
        waiting = await sleeping(redlock, "order")
        await eventually(lambda: not any(node.tracking for node in redlock.nodes))
        for server in servers:
            server.command("DEL", "order")
        await served(waiting)
        assert [node.connections for node in redlock.nodes] == [1, 1, 1]
    reasons = [event.reason for event in told if isinstance(event, NodeDegraded)]
    assert len(reasons) == 3
    for reason in reasons:
        assert reason.startswith("no client tracking, waiters poll: CLIENT CACHING refused: NOPERM")


async def test_one_contender_per_process_polls_without_tracking(
    start_server: Callable[..., LocalServer],
) -> None:
    servers, urls = await untracked(start_server, 1)
    servers[0].command("SET", "order", "somebody", "PX", KEEPS)
    async with Redlock(urls, node_timeout=5.0) as redlock:
        waiters = [asyncio.create_task(redlock.lock("order").acquire()) for _ in range(50)]
        await eventually(lambda: redlock.stats().wakeups_fallback >= 1)
        stats = redlock.stats()
        assert (stats.waiting, stats.standing) == (50, 1)
        assert stats.attempts <= stats.woken_attempts + 1
        servers[0].command("DEL", "order")
        for waiter in waiters:
            await served(waiter)


async def test_a_thousand_waiters_send_as_many_requests_as_one(three_nodes: NodeSet) -> None:
    occupy(three_nodes, "order")
    async with Redlock(three_nodes.urls, node_timeout=5.0) as redlock:
        await all_up(redlock)
        before = stats_of(three_nodes, 0, "evalsha")
        waiters = [asyncio.create_task(redlock.lock("order").acquire()) for _ in range(1000)]
        await eventually(lambda: redlock.stats().waiting == 1000)
        await eventually(
            lambda: redlock.stats().attempts > 0 and not any(node.pending for node in redlock.nodes)
        )
        stats = redlock.stats()
        assert stats.attempts == 1 + stats.woken_attempts
        assert stats.standing == 1
        # Per attempt a place in the queue, as the first in it a tracked look, and a look at
        # intervals.
        assert (
            stats_of(three_nodes, 0, "evalsha") - before
            <= 3 * stats.attempts + redlock.stats().wakeups_fallback + 1
        )
        for waiter in waiters:
            waiter.cancel()
        await asyncio.wait(waiters)
        assert redlock.stats().waiting == 0
        for node in three_nodes:
            node.command("DEL", "order")
        await no_keys_left(three_nodes, redlock)
