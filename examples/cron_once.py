"""The same crontab on every host, and each run happens on one of them, though their clocks are apart.

* * * * *  AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 python cron_once.py

By hand, with the time of a run: python cron_once.py 2026-11-21T10:00:00+00:00, within LATE of it.

At most one host at a time, and a run that succeeded is not done again, as long as no two clocks are more than 30 s apart
(KEEP - LATE). Not: that it is done at all. When its host dies, this run is left out, or begun again by a host that comes
later; examples/cron_recorded.py does each run, and its effect once.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from aioredlock_ng import AcquireTimeout, Redlock

KEEP = 45.0
"""Seconds that a run stays taken after it was done; at most the `max_ttl` of the manager."""

LATE = 15.0
"""Seconds after its time in which a host may still begin a run; one that was held up for longer leaves it to the others."""


async def once(redlock: Redlock, job: str, slot: datetime, do: Callable[[], Awaitable[None]]) -> bool:
    """Do the run of `job` that is due at `slot`, unless another host does it or did; True when it was done here."""
    try:
        # All hosts come in the same instant. Without time to wait they may split the votes twice, and no host gets it.
        async with redlock.lock(f"cron:{job}:{slot:%Y-%m-%dT%H:%M:%S}", blocking_timeout=1) as lease:
            # Under the lock: nobody begins later than this, however long it took to get here.
            if not in_time(slot):
                return False
            await do()
            # Not given back, but left to expire: a host that comes a little later finds the run taken. When do() fails,
            # this is not reached, the lock is given back, and a host that comes a little later tries again.
            await lease.extend(ttl=KEEP)
            lease.abandon()
    except AcquireTimeout:
        return False
    return True


def now() -> datetime:
    return datetime.now(UTC)


def in_time(slot: datetime) -> bool:
    return 0 <= (now() - slot).total_seconds() <= LATE


def this_minute() -> datetime:
    return now().replace(second=0, microsecond=0)


async def report() -> None:
    await asyncio.sleep(0.1)
    print("the report is written")


async def main(slot: datetime) -> None:
    async with Redlock.from_env() as redlock:
        if not await once(redlock, "report", slot, report):
            print("left to another host" if in_time(slot) else f"not the time for {slot:%H:%M:%S}: left out here")


if __name__ == "__main__":
    # The time first, before anything that takes time.
    asyncio.run(main(datetime.fromisoformat(sys.argv[1]) if len(sys.argv) > 1 else this_minute()))
