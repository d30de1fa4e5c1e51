"""A client of another library that polls for a name does not keep our waiters for that name out."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time

KEY = b"a"
POLL_EVERY = 0.005
HOLD = 0.002
SECONDS = 4.0


def now() -> float:
    return asyncio.get_running_loop().time()


async def poll(rig: Rig, rng: random.Random, until: float) -> int:
    """Take the key with SET NX PX on each server, hold it if a majority was free, and delete it.

    Return the holds.
    """
    holds = 0
    while now() < until:
        taken = [server for server in rig.servers if server.get(KEY) is None]
        for server in taken:
            server.set(KEY, b"foreign", 0.1)
        if len(taken) * 2 > len(rig.servers):
            holds += 1
            await asyncio.sleep(HOLD)
        for server in taken:
            if server.get(KEY) == b"foreign":
                server.delete(KEY)
        # No poll falls into step with our requests.
        await asyncio.sleep(POLL_EVERY * rng.uniform(0.8, 1.2))
    return holds


async def work(process: Process, until: float, waits: list[float]) -> None:
    while now() < until:
        since = now()
        async with process.lock("a"):
            waits.append(now() - since)
            await asyncio.sleep(HOLD)


@pytest.mark.parametrize("tasks", [1, 5])
@pytest.mark.parametrize("rig", [3, 5], indirect=True)
async def test_a_foreign_client_that_polls_cannot_keep_waiters_of_two_processes_out(
    rig: Rig, tasks: int
) -> None:
    processes = [await rig.process() for _ in range(2)]
    until = now() + SECONDS
    waits: list[list[float]] = [[], []]
    foreign = asyncio.create_task(poll(rig, random.Random(1), until))
    async with asyncio.TaskGroup() as group:
        for process, own in zip(processes, waits, strict=True):
            for _ in range(tasks):
                group.create_task(work(process, until, own))
    holds, ours = await foreign, sum(map(len, waits))
    # At a release one of our tasks waits. The nodes offer the key to it, and to the client the key
    # is taken.
    assert holds < 0.01 * ours
    assert min(map(len, waits)) > 0.45 * ours
    # All other tasks are served once between two leases of a task.
    assert max(map(max, waits)) < tasks * 0.02
