"""The cron example: hosts that start one run together or apart, with clocks that differ, and a run that fails."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock
from examples import cron_once
from tests.support.coverage import untraced
from tests.support.rig import Rig

from .conftest import EXAMPLES

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

TEN = datetime(2026, 11, 21, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


async def test_one_of_several_hosts_does_a_run(nodes: NodeSet) -> None:
    # A busy machine may need longer than LATE for a Python to start.
    script = (
        "import asyncio; from datetime import datetime; from examples import cron_once; cron_once.LATE = 40.0;"
        f" asyncio.run(cron_once.main(datetime.fromisoformat('{datetime.now(UTC)}')))"
    )
    hosts = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, cwd=EXAMPLES.parent, env=untraced(), stdout=asyncio.subprocess.PIPE
        )
        for _ in range(3)
    ]
    told = [(await host.communicate())[0].decode().strip() for host in hosts]
    assert sorted(told) == ["left to another host"] * 2 + ["the report is written"]


async def test_too_late_is_not_taken_for_another_hosts_work(
    nodes: NodeSet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cron_once, "now", lambda: TEN + timedelta(seconds=cron_once.LATE + 1))
    await cron_once.main(TEN)
    assert capsys.readouterr().out == "not the time for 10:00:00: left out here\n"


async def test_a_finished_run_stays_taken_and_the_next_is_free(nodes: NodeSet, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []

    async def do() -> None:
        runs.append("here")

    monkeypatch.setattr(cron_once, "now", lambda: TEN)
    async with Redlock.from_env() as one, Redlock.from_env() as other:
        assert await cron_once.once(one, "report", TEN, do)
        assert not await cron_once.once(other, "report", TEN, do)
        assert (await other.inspect("cron:report:2026-11-21T10:00:00")).remaining > cron_once.KEEP - 5
        assert await cron_once.once(other, "another", TEN, do)
        monkeypatch.setattr(cron_once, "now", lambda: TEN + MINUTE)
        assert await cron_once.once(other, "report", TEN + MINUTE, do)
    assert len(runs) == 3


async def test_a_failed_run_is_left_to_another_host(nodes: NodeSet, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing() -> None:
        raise OSError("disk full")

    async def do() -> None:
        pass

    monkeypatch.setattr(cron_once, "now", lambda: TEN)
    async with Redlock.from_env() as one, Redlock.from_env() as other:
        with pytest.raises(OSError, match="disk full"):
            await cron_once.once(one, "report", TEN, failing)
        assert await cron_once.once(other, "report", TEN, do)


# Hosts whose clocks are apart, in a made-up world of a day

ahead: ContextVar[float] = ContextVar("ahead")
"""Seconds that this host's clock is ahead of the world's."""


class World:
    """Hosts that run the crontab, and how often each slot was done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        time = asyncio.get_running_loop().time
        began = time()
        monkeypatch.setattr(cron_once, "now", lambda: TEN + timedelta(seconds=time() - began + ahead.get()))
        self.done: Counter[datetime] = Counter()

    async def host(self, redlock: Redlock, seconds_ahead: float, slots: int, draw: random.Random, delay: float) -> None:
        """Start each slot when its minute begins by this host's clock, or up to `delay` seconds later."""
        ahead.set(seconds_ahead)
        for number in range(2, slots + 2):
            slot = TEN + number * MINUTE
            await asyncio.sleep((slot - cron_once.now()).total_seconds() + draw.uniform(0, delay))

            async def do(slot: datetime = slot) -> None:
                await asyncio.sleep(draw.uniform(0, 20))
                self.done[slot] += 1

            await cron_once.once(redlock, "report", slot, do)


@pytest.mark.virtual_time
async def test_no_slot_is_done_twice_while_clocks_are_not_further_apart_than_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    world, draw = World(monkeypatch), random.Random(11)
    apart = cron_once.KEEP - cron_once.LATE
    async with Rig() as rig, asyncio.TaskGroup() as hosts:
        for seconds_ahead in (0, apart, *(draw.uniform(0, apart) for _ in range(3))):
            redlock = (await rig.process()).redlock
            hosts.create_task(world.host(redlock, seconds_ahead, 400, draw, delay=25))
    # Each host was held up for longer than LATE in two slots of five; the others did nearly all of those.
    assert set(world.done.values()) == {1}
    assert len(world.done) > 380


@pytest.mark.virtual_time
async def test_every_slot_is_done_while_a_host_is_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world, draw = World(monkeypatch), random.Random(12)
    async with Rig() as rig, asyncio.TaskGroup() as hosts:
        for seconds_ahead in (0, 7, 29):
            redlock = (await rig.process()).redlock
            hosts.create_task(world.host(redlock, seconds_ahead, 50, draw, delay=14))
    assert world.done == {TEN + number * MINUTE: 1 for number in range(2, 52)}


@pytest.mark.virtual_time
async def test_a_slot_is_done_though_all_hosts_come_at_once_each_near_another_node(monkeypatch: pytest.MonkeyPatch) -> None:
    world, draw = World(monkeypatch), random.Random(14)
    async with Rig() as rig, asyncio.TaskGroup() as hosts:
        for zone in range(3):
            redlock = (await rig.process(near=zone)).redlock
            hosts.create_task(world.host(redlock, 0, 50, draw, delay=0))
    assert world.done == {TEN + number * MINUTE: 1 for number in range(2, 52)}


@pytest.mark.virtual_time
async def test_further_apart_than_that_a_slot_is_done_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    world, draw = World(monkeypatch), random.Random(13)
    async with Rig() as rig, asyncio.TaskGroup() as hosts:
        # The one ahead is done after 20 s at most; the other begins 70 s after it began.
        for seconds_ahead in (70, 0):
            redlock = (await rig.process()).redlock
            hosts.create_task(world.host(redlock, seconds_ahead, 5, draw, delay=1))
    assert set(world.done.values()) == {2}
