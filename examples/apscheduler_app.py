"""The same APScheduler in every process of a fleet.

One process writes each report. One process at a time counts the stock.

export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
python -m examples.apscheduler_app & python -m examples.apscheduler_app
"""

import asyncio
import contextlib
from datetime import UTC, datetime

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from aioredlock_ng import LockHeld, Redlock
from examples.cron_once import now, once

PERIOD = 10
"""Seconds between two reports."""


def create_scheduler(redlock: Redlock) -> AsyncIOScheduler:
    scheduler = AsyncIOScheduler(timezone=UTC)

    async def report() -> None:
        # APScheduler does not pass the planned time to a job.
        slot = datetime.fromtimestamp(now().timestamp() // PERIOD * PERIOD, UTC)
        await once(redlock, "report", slot, lambda: write_report(slot))

    @redlock.guard("stock:{warehouse}", blocking_timeout=0)
    async def count(warehouse: str) -> None:
        await count_stock(warehouse)

    async def stock() -> None:
        # LockHeld: another process counts already.
        with contextlib.suppress(LockHeld):
            await count("north")

    # Once per slot needs a trigger that fires at the same times in all processes. The
    # trigger "interval" counts from the start of its process.
    scheduler.add_job(report, "cron", second=f"*/{PERIOD}", id="report")
    scheduler.add_job(stock, "interval", seconds=PERIOD, id="stock")
    return scheduler


async def write_report(slot: datetime) -> None:
    # The work.
    await asyncio.sleep(0.1)
    print(f"the report of {slot:%H:%M:%S} is written", flush=True)


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
