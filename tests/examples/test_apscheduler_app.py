"""The APScheduler example: several real schedulers, as several processes would have them, on the
real clock.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent

from aioredlock_ng import LockLost, Redlock
from examples import apscheduler_app
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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


class Job:
    """The work of a job, and how often and how many times at once it ran."""

    def __init__(self) -> None:
        self.runs = self.running = self.most = 0

    async def __call__(self, *args: str) -> None:
        self.runs += 1
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.05)
        self.running -= 1


@pytest.fixture
def every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apscheduler_app, "PERIOD", 1)


@pytest.mark.slow
async def test_each_job_is_run_by_one_of_the_processes_and_never_by_two_at_once(
    every_second: None, nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, counted = Job(), Job()
    monkeypatch.setattr(apscheduler_app, "write_report", written)
    monkeypatch.setattr(apscheduler_app, "count_stock", counted)
    began = time.monotonic()
    async with scheduling(), scheduling(), scheduling():
        await eventually(lambda: written.runs >= 3 and counted.runs >= 3, within=20)
        took = time.monotonic() - began
        runs = (written.runs, counted.runs)
    # Grants are `within` apart, so this is a bound however late a busy machine begins a run.
    assert runs[0] <= took / 0.5 + 1
    assert runs[1] <= took / 0.9 + 1
    assert (written.most, counted.most) == (1, 1)


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
