"""The RQ example: real workers, which fork a process per job, on a real queue."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock

from .queues import Workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet


@pytest.mark.slow
@pytest.mark.once
async def test_no_deposit_of_many_workers_is_lost(
    nodes: NodeSet, start_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    broker = start_server().url
    program = "import logging; logging.basicConfig(); from rq.cli import main; main()"
    worker = (sys.executable, "-c", program, "worker", "--url", broker, "--with-scheduler")
    async with Workers([worker] * 2, broker, tmp_path, "Listening on") as workers:
        producer = (sys.executable, "-m", "examples.rq_jobs")
        await asyncio.gather(
            workers.produce(*producer, "ann", "10"), workers.produce(*producer, "bob", "4")
        )
        await workers.balance("ann", 10, within=60)
        await workers.balance("bob", 4)

        # A lock that somebody else keeps for too long: the job goes back into the queue.
        async with Redlock.from_env() as elsewhere:
            async with elsewhere.lock("account:cid") as lease:
                await workers.produce(*producer, "cid", "1")

                async def nobody_waits_again() -> bool:
                    """The job has waited, and waits no more."""
                    waiting = (await elsewhere.inspect("account:cid")).waiting
                    seen.append(bool(waiting))
                    return True in seen and not seen[-1]

                seen: list[bool] = []
                while not await nobody_waits_again():
                    await asyncio.sleep(0.02)
                lease.check()
                assert not (tmp_path / "cid").exists()
            await workers.balance("cid", 1)
    assert nodes.keys() == [set()] * 3
