"""The same APScheduler in every process of a fleet. One process does each run of a job.

export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
python examples/apscheduler_app.py & python examples/apscheduler_app.py
"""

import asyncio
from datetime import UTC

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from aioredlock_ng import Redlock

PERIOD = 10
"""Seconds between two runs of a job."""


def create_scheduler(redlock: Redlock) -> AsyncIOScheduler:
    scheduler = AsyncIOScheduler(timezone=UTC)

    # The trigger "cron" fires at the same times in all processes.
    @scheduler.scheduled_job("cron", second=f"*/{PERIOD}", id="report")
    @redlock.once("report", within=PERIOD / 2)
    async def report() -> None:
        await write_report()

    # The trigger "interval" counts from the start of its process. The first process
    # whose trigger fires counts for all of them.
    @scheduler.scheduled_job("interval", ["north"], seconds=PERIOD, id="stock")
    @redlock.once("stock:{warehouse}", within=PERIOD * 0.9)
    async def stock(warehouse: str) -> None:
        await count_stock(warehouse)

    return scheduler


async def write_report() -> None:
    # The work.
    await asyncio.sleep(0.1)
    print("the report is written", flush=True)


async def count_stock(warehouse: str) -> None:
    # The work.
    await asyncio.sleep(0.1)
    print(f"{warehouse}: counted", flush=True)


async def main() -> None:
    async with Redlock.from_env() as redlock:
        scheduler = create_scheduler(redlock)
        scheduler.start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
