"""The arq example: real workers on a real queue; arq needs redis-py below 6, near the oldest that
we work with.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock

from .queues import Workers, python_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet


@pytest.fixture(scope="session")
def python() -> Path:
    return python_with("arq", "arq==0.28.0")


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.timeout(180)  # the environment is made when it is not there
async def test_no_deposit_of_many_workers_is_lost(
    python: Path, nodes: NodeSet, start_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    worker = (python, "-m", "arq", "examples.arq_app.WorkerSettings")
    async with Workers([worker] * 2, start_server().url, tmp_path, "Starting worker") as workers:
        producer = (python, "-m", "examples.arq_app")
        await asyncio.gather(
            workers.produce(*producer, "ann", "20"), workers.produce(*producer, "bob", "10")
        )
        await workers.balance("ann", 20)
        await workers.balance("bob", 10)

        # A lock that somebody else keeps for too long: the job goes back into the queue.
        async with Redlock.from_env() as elsewhere, elsewhere.lock("account:cid"):
            await workers.produce(*producer, "cid", "1")
            await workers.says("deposit retrying job in 0.10s")
            assert not (tmp_path / "cid").exists()
        await workers.balance("cid", 1)
    assert nodes.keys() == [set()] * 3


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.timeout(180)  # the environment is made when it is not there
async def test_a_job_leaves_no_key_after_a_timeout_or_a_loss_and_is_repeated_after_a_loss(
    python: Path, nodes: NodeSet, start_server: Callable[..., LocalServer], tmp_path: Path
) -> None:
    async with Workers([], start_server().url, tmp_path, "") as workers:
        told = await workers.produce(python, Path(__file__).with_name("arq_limits.py"))
    assert "slow: TimeoutError()" in told
    assert "lost: ['broken off', 'ann 7'] 2" in told
    assert nodes.keys() == [set()] * 3
