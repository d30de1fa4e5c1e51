"""The cron example: hosts that start one run together or one after the other, and a run that fails."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from examples import cron_once

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet


async def test_one_of_several_hosts_does_a_run(nodes: NodeSet) -> None:
    script = EXAMPLES / "cron_once.py"
    hosts = [
        await asyncio.create_subprocess_exec(sys.executable, script, "nightly", stdout=asyncio.subprocess.PIPE)
        for _ in range(3)
    ]
    told = [(await host.communicate())[0].decode().strip() for host in hosts]
    assert sorted(told) == ["another host has this run"] * 2 + ["the report is written"]


async def test_a_finished_run_stays_taken_and_the_next_is_free(nodes: NodeSet) -> None:
    runs: list[str] = []

    async def job() -> None:
        runs.append("here")

    async with Redlock.from_env() as one, Redlock.from_env() as other:
        assert await cron_once.once(one, "10:00", job)
        assert not await cron_once.once(other, "10:00", job)
        assert (await other.inspect("cron:10:00")).remaining > 30
        assert await cron_once.once(other, "10:01", job)
    assert len(runs) == 2


async def test_a_failed_run_is_left_to_another_host(nodes: NodeSet) -> None:
    async def failing() -> None:
        raise OSError("disk full")

    async def job() -> None:
        pass

    async with Redlock.from_env() as one, Redlock.from_env() as other:
        with pytest.raises(OSError, match="disk full"):
            await cron_once.once(one, "10:00", failing)
        assert await cron_once.once(other, "10:00", job)
