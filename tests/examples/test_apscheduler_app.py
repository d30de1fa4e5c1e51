"""The APScheduler example: several real schedulers, as several processes would have them, on the real clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent

from aioredlock_ng import LockLost, Redlock
from examples import apscheduler_app
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from apscheduler.schedulers.asyncio import AsyncIOScheduler

    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once


@asynccontextmanager
async def scheduling() -> AsyncIterator[tuple[Redlock, AsyncIOScheduler]]:
    async with Redlock.from_env() as redlock:
        scheduler = apscheduler_app.create_scheduler(redlock)
        scheduler.start()
        try:
            yield redlock, scheduler
        finally:
            scheduler.shutdown(wait=False)
            # It does so in the next tick, and cancels its jobs then.
            await eventually(lambda: not scheduler.running)


@pytest.fixture
def every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apscheduler_app, "PERIOD", 1)


async def test_each_report_is_written_once_and_stock_counted_one_at_a_time(
    every_second: None, nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: Counter[datetime] = Counter()
    counting, most = 0, 0

    async def write_report(slot: datetime) -> None:
        await asyncio.sleep(0.05)
        written[slot] += 1

    async def count_stock(warehouse: str) -> None:
        nonlocal counting, most
        counting += 1
        most = max(most, counting)
        await asyncio.sleep(0.05)
        counting -= 1

    monkeypatch.setattr(apscheduler_app, "write_report", write_report)
    monkeypatch.setattr(apscheduler_app, "count_stock", count_stock)
    async with scheduling(), scheduling(), scheduling():
        await eventually(lambda: len(written) >= 3 and most, within=20)
    assert set(written.values()) == {1}
    assert most == 1


async def test_a_job_whose_lock_is_lost_is_cancelled_and_the_schedule_goes_on(
    every_second: None, nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ends = asyncio.Event(), list[str]()

    async def count_stock(warehouse: str) -> None:
        if ends:
            ends.append("counted")
            return
        begun.set()
        try:
            await asyncio.sleep(40)
        finally:
            ends.append("cancelled")

    monkeypatch.setattr(apscheduler_app, "count_stock", count_stock)
    errors: list[JobExecutionEvent] = []
    async with scheduling() as (redlock, scheduler):
        scheduler.add_listener(errors.append, EVENT_JOB_ERROR)
        await begun.wait()
        await redlock.force_release("stock:north")
        await eventually(lambda: len(ends) > 1, within=20)
    assert ends[:2] == ["cancelled", "counted"]
    # On a busy machine another run may have found no majority.
    assert LockLost in [type(error.exception) for error in errors]
