"""The same crontab on every host. Each run happens on one of the hosts.

AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
* * * * *  python cron_once.py

All hosts start the job, and one of them runs it. The starts may differ by up to 29 s,
by clocks or by load. A run that fails, or whose host dies, is not repeated. The example
cron_recorded.py completes every run, with one effect each.
"""

import asyncio

from aioredlock_ng import Redlock

PERIOD = 60.0
"""Seconds between two runs, as in the crontab."""


async def report() -> None:
    # The work.
    await asyncio.sleep(0.1)
    print("the report is written")


async def main() -> None:
    async with Redlock.from_env() as redlock:
        report_once = redlock.once("cron:report", within=PERIOD / 2)(report)
        if not await report_once():
            print("left to another host")


if __name__ == "__main__":
    asyncio.run(main())
