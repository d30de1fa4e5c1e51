"""`Redlock.once` on real servers: processes of one fleet, one of which is killed in its run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from tests.integration.helpers import no_keys_left, program

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

LATE = 20.0
"""Seconds that a busy machine may be late."""

JOB = """
import asyncio, os, signal, sys
from aioredlock_ng import Redlock

async def main():
    async with Redlock(sys.argv[1:]) as redlock:
        @redlock.once("job", within=60)
        async def run():
            print("begun", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        await run()

asyncio.run(main())
"""


async def test_one_of_several_managers_runs_the_function(three_nodes: NodeSet) -> None:
    began: list[Redlock] = []

    async def call(redlock: Redlock) -> bool:
        @redlock.once("job", within=60)
        async def run() -> None:
            began.append(redlock)

        return await run()

    async with (
        Redlock(three_nodes.urls, node_timeout=5.0) as one,
        Redlock(three_nodes.urls, node_timeout=5.0) as two,
        Redlock(three_nodes.urls, node_timeout=5.0) as three,
    ):
        ran = await asyncio.gather(*(call(redlock) for redlock in (one, two, three) * 2))
        assert (sum(ran), len(began)) == (1, 1)
        assert (await one.inspect("job")).over
        await two.force_release("job")
        await no_keys_left(three_nodes, one, two, three)


@pytest.mark.slow
@pytest.mark.faults
async def test_the_run_of_a_killed_process_is_not_repeated_within_the_time(
    three_nodes: NodeSet,
) -> None:
    three_nodes.found()
    async with (
        Redlock(three_nodes.urls, node_timeout=5.0) as redlock,
        program(JOB, *three_nodes.urls) as job,
    ):
        assert job.stdout is not None
        assert await asyncio.wait_for(job.stdout.readline(), LATE) == b"begun\n"
        await job.wait()

        @redlock.once("job", within=60)
        async def run() -> None:
            raise AssertionError("a second run")

        assert await run() is False
        await redlock.force_release("job")
