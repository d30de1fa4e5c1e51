"""The same crontab on every host, and each run happens on one of them.

* * * * *  AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 python cron_once.py
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from aioredlock_ng import LockHeld, Redlock

KEEP = 45.0
"""Seconds that a finished run stays taken, less a third at most: hosts must start it within half a minute of each other."""


async def once(redlock: Redlock, run: str, job: Callable[[], Awaitable[None]]) -> bool:
    """Do `job` unless another host does it or has just done it; True when it was done here."""
    try:
        async with redlock.lock(f"cron:{run}", ttl=KEEP, blocking_timeout=0) as lease:
            await job()
            # Not given back but left to expire: a host that comes a little later finds the run taken. When the job
            # fails, this line is not reached, the lock is released, and another host may try.
            lease.abandon()
    except LockHeld:
        return False
    return True


async def report() -> None:
    await asyncio.sleep(0.1)
    print("the report is written")


async def main(run: str) -> None:
    async with Redlock.from_env() as redlock:
        if not await once(redlock, run, report):
            print("another host has this run")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"report:{datetime.now(UTC):%Y-%m-%dT%H:%M}"))
