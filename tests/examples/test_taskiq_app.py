"""The taskiq example: real workers on a real queue; and what a task's own timeout leaves behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from taskiq import InMemoryBroker

from aioredlock_ng import Redlock
from tests.support.eventually import eventually

from .queues import Workers, python_with

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet


@pytest.fixture(scope="session")
def python() -> Path:
    return python_with("taskiq", "taskiq==0.13.0", "taskiq-redis==1.2.4")


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.timeout(180)  # the environment is made when it is not there
async def test_no_deposit_of_many_workers_is_lost(
    python: Path, nodes: NodeSet, start_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    worker = (python, "-m", "taskiq", "worker", "examples.taskiq_app:broker", "--workers", "2")
    async with Workers([worker], start_server().url, tmp_path, "Listening started.") as workers:
        producer = (python, "-m", "examples.taskiq_app")
        await asyncio.gather(
            workers.produce(*producer, "ann", "30"), workers.produce(*producer, "bob", "10")
        )
        await workers.balance("ann", 30)
        await workers.balance("bob", 10)

        # A lock that somebody else keeps for too long: the task goes back into the queue.
        async with Redlock.from_env() as elsewhere, elsewhere.lock("account:cid"):
            await workers.produce(*producer, "cid", "1")
            await workers.says("Task 'deposit' invocation failed. Retrying.")
            assert not (tmp_path / "cid").exists()
        await workers.balance("cid", 1)
    assert nodes.keys() == [set()] * 3


async def test_a_task_that_times_out_gives_its_lock_back(nodes: NodeSet) -> None:
    broker = InMemoryBroker()
    async with Redlock.from_env() as redlock:

        @broker.task(timeout=0.5)
        @redlock.guard("job:{number}")
        async def job(number: int, seconds: float) -> str:
            assert await redlock.locked(f"job:{number}")
            await asyncio.sleep(seconds)
            return "done"

        late = await (await job.kiq(1, 40)).wait_result()
        assert isinstance(late.error, TimeoutError)
        # Sooner than a key that is left behind would go by itself.
        await eventually(lambda: nodes.keys() == [set()] * 3, within=5.0)
        # A task that waits for its lock for too long times out too.
        async with redlock.lock("job:1"):
            waiting = await (await job.kiq(1, 0)).wait_result()
            assert isinstance(waiting.error, TimeoutError)
        in_time = await job.kicker().with_labels(timeout=30).kiq(1, 0)
        assert (await in_time.wait_result()).return_value == "done"
        # Sooner than a key that is left behind would go by itself.
        await eventually(lambda: nodes.keys() == [set()] * 3, within=5.0)
    await broker.shutdown()
