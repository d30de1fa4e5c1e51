"""The Celery example: real workers with processes, on a real broker."""

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
    worker = (
        sys.executable,
        "-m",
        "celery",
        "-A",
        "examples.celery_app",
        "worker",
        "--loglevel=INFO",
        "--concurrency=2",
    )
    async with Workers([worker] * 2, start_server().url, tmp_path, " ready.") as workers:
        producer = (sys.executable, "-m", "examples.celery_app")
        await asyncio.gather(
            workers.produce(*producer, "ann", "30"), workers.produce(*producer, "bob", "10")
        )
        await workers.balance("ann", 30)
        await workers.balance("bob", 10)

        # A lock that somebody else keeps for too long: the task goes back into the queue.
        async with Redlock.from_env() as elsewhere, elsewhere.lock("account:cid"):
            await workers.produce(*producer, "cid", "1")
            await workers.says("retry: Retry in 1s")
            assert not (tmp_path / "cid").exists()
        await workers.balance("cid", 1)
    assert nodes.keys() == [set()] * 3
