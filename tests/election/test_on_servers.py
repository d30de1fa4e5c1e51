"""Elections on real servers and on the nodes of the testing kit.

The leader changes, is killed, or loses its term on purpose.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockLost, Redlock
from aioredlock_ng._engine.waiting import place
from aioredlock_ng.testing import MemoryNodes, lose_at, lose_lock
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aioredlock_ng import Election, Lease
    from tests.support.node_set import NodeSet

NAME = "scheduler"
TTL = 2.0

LATE = 20.0
"""Seconds that a busy machine may be late."""

LEADER = """
import asyncio, sys
from aioredlock_ng import Redlock

async def lead(lease):
    print("leads", flush=True)
    await asyncio.Event().wait()

async def main():
    async with Redlock(sys.argv[1:], ttl=2.0) as redlock:
        await redlock.election("scheduler", label="victim").run(lead)

asyncio.run(main())
"""


@pytest.fixture(params=["memory", "servers", pytest.param("threads", marks=pytest.mark.full)])
async def managers(
    request: pytest.FixtureRequest, three_nodes: NodeSet
) -> AsyncIterator[tuple[Redlock, Redlock]]:
    """Two managers, as of two processes."""
    nodes = MemoryNodes(3)

    def make() -> Redlock:
        if request.param == "memory":
            return nodes.redlock(ttl=30.0)
        return Redlock(three_nodes.urls, ttl=30.0, thread=request.param == "threads")

    async with make() as first, make() as second:
        yield first, second


def leading_until_cancelled(begun: list[str], label: str) -> Callable[[Lease], Awaitable[None]]:
    async def main(_lease: Lease) -> None:
        begun.append(label)
        await asyncio.Event().wait()

    return main


async def seen_by(election: Election, seen: list[str | None]) -> None:
    async for leader in election.watch():
        seen.append(leader)  # noqa: PERF401 - a list that others read meanwhile


async def test_the_lead_passes_to_the_next_candidate_and_a_watcher_sees_it(
    managers: tuple[Redlock, Redlock],
) -> None:
    first, second = managers
    begun: list[str] = []
    seen: list[str | None] = []
    ann, bob = first.election(NAME, label="ann"), second.election(NAME, label="bob")
    tasks = [
        asyncio.ensure_future(seen_by(second.election(NAME), seen)),
        asyncio.ensure_future(ann.run(leading_until_cancelled(begun, "ann"))),
    ]
    await eventually(lambda: seen[-1:] == ["ann"])
    tasks.append(asyncio.ensure_future(bob.run(leading_until_cancelled(begun, "bob"))))
    await asyncio.sleep(0.2)
    assert await ann.resign()
    await eventually(lambda: begun == ["ann", "bob"])
    await eventually(lambda: seen[-1:] == ["bob"])
    assert await bob.resign()
    await eventually(lambda: seen[-1] is None)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_leader_loses_its_term_on_purpose(managers: tuple[Redlock, Redlock]) -> None:
    first, second = managers
    election = first.election(NAME, rejoin=False)
    begun: list[str] = []
    running = asyncio.ensure_future(election.run(leading_until_cancelled(begun, "ann")))
    await eventually(lambda: begun)
    await lose_lock(second, NAME)
    with pytest.raises(LockLost):
        await running
    with lose_at(NAME, "acquired"), pytest.raises(LockLost):
        await election.run(leading_until_cancelled(begun, "ann"))


async def test_a_killed_leader_is_followed_within_its_ttl(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the end of the lease as a reason, the candidate would ask after minutes.
    monkeypatch.setattr(place, "REFRESH_EVERY", 300.0)
    begun: list[str] = []
    async with Redlock(three_nodes.urls, ttl=TTL) as redlock:
        victim = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LEADER, *three_nodes.urls, stdout=asyncio.subprocess.PIPE
        )
        assert victim.stdout is not None
        assert await victim.stdout.readline() == b"leads\n"
        running = asyncio.ensure_future(
            redlock.election(NAME, label="next").run(leading_until_cancelled(begun, "next"))
        )
        await asyncio.sleep(0.3)
        victim.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        await victim.wait()
        await eventually(lambda: begun)
        assert time.monotonic() - killed <= TTL + LATE
        running.cancel()
        await asyncio.wait([running])
