"""The same crontab on every host. Each run happens on one of the hosts.

The clocks of the hosts may differ.

AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
* * * * *  python cron_once.py

By hand, a run is named by its time and must start at most LATE seconds after it:
python cron_once.py 2026-11-21T10:00:00+00:00

One host at a time works on a run. A run that succeeded is not repeated, as long as no
two clocks differ by more than 30 s (KEEP - LATE). A run can be left out: if its host
dies, no other host repeats it, except one that starts later within LATE. The example
cron_recorded.py completes every run, with one effect each.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from aioredlock_ng import AcquireTimeout, Redlock

KEEP = 45.0
"""Seconds for which a finished run stays taken. At most the manager's `max_ttl`."""

LATE = 15.0
"""Seconds after the time of a run in which a host may still begin it."""


async def once(
    redlock: Redlock, job: str, slot: datetime, do: Callable[[], Awaitable[None]]
) -> bool:
    """Do the run of `job` that is due at `slot`, unless another host does it or did.

    Returns:
        True if this host did the run.
    """
    name = f"cron:{job}:{slot:%Y-%m-%dT%H:%M:%S}"
    try:
        # All hosts start in the same instant. Without time to wait they may split the
        # votes twice, and then no host gets the lock.
        async with redlock.lock(name, blocking_timeout=1) as lease:
            # The check is under the lock, because the wait may have taken long.
            if not in_time(slot):
                return False
            await do()
            # The lock is left to expire, so a host that starts a little later finds the
            # run taken. If do() fails, the lock is released, and such a host tries
            # again.
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
            missed = f"not the time for {slot:%H:%M:%S}: left out here"
            print("left to another host" if in_time(slot) else missed)


if __name__ == "__main__":
    # Read the clock before anything that takes time.
    given = datetime.fromisoformat(sys.argv[1]) if len(sys.argv) > 1 else this_minute()
    asyncio.run(main(given))
