"""A lock with `min_hold` on real servers: it stays taken, whatever happens to its holder and to the
connections.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from aioredlock_ng.events import NodeDegraded
from tests.integration.helpers import all_up, no_keys_left, program
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.events import Event
    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

    StartServer = Callable[..., LocalServer]

MIN_HOLD = 2.0

LATE = 20.0
"""Seconds that a busy machine may be late."""

JOB = """
import asyncio, os, signal, sys, time
from aioredlock_ng import Redlock

async def main():
    how, *urls = sys.argv[1:]
    async with Redlock(urls, ttl=1.0) as redlock:
        asked = time.monotonic()
        lease = await redlock.lock("order", min_hold=float(2)).acquire()
        print(asked, lease.token, flush=True)
        if how == "after the release":
            await lease.release()
        elif how == "during the release":
            asyncio.ensure_future(lease.release())
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def full(case: str) -> object:
    return pytest.param(case, marks=pytest.mark.full)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize(
    "how", ["after the release", *map(full, ("during the release", "before the release"))]
)
async def test_the_lock_of_a_process_killed_around_its_release_stays_taken_until_min_hold_is_over(
    three_nodes: NodeSet, how: str
) -> None:
    three_nodes.found()
    async with (
        Redlock(three_nodes.urls, node_timeout=5.0) as redlock,
        program(JOB, how, *three_nodes.urls) as job,
    ):
        assert job.stdout is not None
        said = await asyncio.wait_for(job.stdout.readline(), LATE)
        asked, token = float(said.split()[0]), said.split()[1].decode()
        await job.wait()
        info = await redlock.inspect("order")
        if time.monotonic() < asked + MIN_HOLD:
            assert (info.held, info.token) == (True, token)
            assert info.over or how != "after the release"
        lease = await asyncio.wait_for(redlock.lock("order").acquire(), LATE)
        assert time.monotonic() >= asked + MIN_HOLD
        await lease.release()
        await no_keys_left(three_nodes, redlock)


@pytest.mark.slow
@pytest.mark.usefixtures("no_polling")
async def test_a_waiter_sleeps_until_min_hold_is_over(three_nodes: NodeSet) -> None:
    async with (
        Redlock(three_nodes.urls, ttl=60) as redlock,
        Redlock(three_nodes.urls, node_timeout=5.0) as other,
    ):
        asked = time.monotonic()
        lease = await redlock.lock("order", min_hold=MIN_HOLD).acquire()
        waiting = asyncio.create_task(other.lock("order").acquire())
        await eventually(lambda: other.stats().standing == 1)
        assert await lease.release() is True
        second = await asyncio.wait_for(waiting, LATE)
        assert time.monotonic() >= asked + MIN_HOLD
        assert other.stats().attempts == 2, "one attempt before the wait, and one behind it"
        await second.release()
        await no_keys_left(three_nodes, redlock, other)


@pytest.mark.slow
async def test_a_semaphore_with_min_hold_limits_a_rate(three_nodes: NodeSet) -> None:
    async with Redlock(three_nodes.urls) as redlock, Redlock(three_nodes.urls) as other:
        starts: list[float] = []

        async def begin(by: Redlock) -> None:
            async with by.semaphore("mail", 2, min_hold=1.0) as lease:
                # The deadline has a fixed distance to the start of the granted attempt. The body
                # may begin much later.
                starts.append(time.monotonic() + lease.remaining())

        async with asyncio.timeout(LATE):
            await asyncio.gather(*(begin(by) for by in (redlock, other) * 3))
        starts.sort()
        # The third attempt may begin a round trip before a node grants it.
        assert all(third - first >= 0.9 for first, third in zip(starts, starts[2:], strict=False))


@pytest.mark.slow
@pytest.mark.faults
async def test_connections_that_are_cut_at_the_release_do_not_free_the_lock_early(
    three_nodes: NodeSet,
) -> None:
    async with Redlock(three_nodes.urls, ttl=1.0) as redlock, Redlock(three_nodes.urls) as other:
        asked = time.monotonic()
        lease = await redlock.lock("order", min_hold=MIN_HOLD).acquire()
        release = asyncio.create_task(lease.release())
        for node in three_nodes:
            await asyncio.to_thread(
                node.command, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"
            )
        await release
        second = await asyncio.wait_for(other.lock("order").acquire(), LATE)
        assert time.monotonic() >= asked + MIN_HOLD
        await second.release()
        await no_keys_left(three_nodes, redlock, other)


@pytest.mark.slow
@pytest.mark.faults
async def test_a_node_that_hangs_at_the_release_does_not_free_the_lock_early(
    three_nodes: NodeSet,
) -> None:
    async with Redlock(three_nodes.urls, ttl=1.0) as redlock, Redlock(three_nodes.urls) as other:
        asked = time.monotonic()
        lease = await redlock.lock("order", min_hold=MIN_HOLD).acquire()
        three_nodes.pause(0)
        await lease.release()
        three_nodes.resume(0)
        second = await asyncio.wait_for(other.lock("order").acquire(), LATE)
        assert time.monotonic() >= asked + MIN_HOLD
        await second.release()
        await all_up(redlock)


async def test_a_user_without_the_right_to_labels_keeps_the_lock_taken_too(
    start_server: StartServer,
) -> None:
    server = start_server()
    rights = ("~lock:*", "~aioredlock_ng:marker", "~aioredlock_ng:fences", "&*", "+@all")
    server.command("ACL", "SETUSER", "locks", "on", ">word", *rights)
    heard: list[Event] = []
    url = server.url.replace("redis://", "redis://locks:word@")
    async with Redlock(
        [url], node_timeout=5.0, key_format="lock:{name}", sinks=[heard.append]
    ) as redlock:
        async with redlock.lock("a", min_hold=30) as lease:
            pass
        info = await redlock.inspect("a")
        assert (info.held, info.over, info.token) == (True, True, lease.token)
        assert server.command("EXISTS", "aioredlock_ng:owner:lock:a") == b"0"
        assert await redlock.force_release("a") == 1
    assert not any(isinstance(event, NodeDegraded) for event in heard)
