"""Unique numbers of 64 bits, made by up to MACHINES processes without asking anybody.

A number has the time, the number of the machine and a count, as Snowflake ids have. The
number of the machine is the slot of a semaphore. So no two processes have the same one
at the same time, and no configuration assigns them:

    export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
    python examples/id_generator.py 1000 & python examples/id_generator.py 1000

Ids are unique if the clocks of no two hosts ever differ by CLOCKS or more. The ids of
one process rise.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aioredlock_ng import Lease, LockLost, Redlock

EPOCH = 1_767_225_600_000
"""The beginning of 2026, in milliseconds since 1970. The ids suffice for 69 years."""

MACHINES = 64
"""Number of processes that make ids at a time, below 2**MACHINE_BITS. Others wait."""

MACHINE_BITS = 10
COUNT_BITS = 12

CLOCKS = 2.0
"""Seconds by which the clocks of two hosts never differ."""


class Generator:
    """Makes ids as long as the lease of the machine's number is valid."""

    def __init__(self, lease: Lease, clock: Callable[[], float] = time.time) -> None:
        self._lease = lease
        self._clock = clock
        # Milliseconds and count in one number. When the count is full, the next id has
        # the next millisecond.
        self._last = 0

    def new_id(self) -> int:
        """Return an id that no other call returns, in any process. No I/O.

        Raises:
            LockLost: Another process may have the machine's number by now.
        """
        now = int(self._clock() * 1000) - EPOCH
        # The check comes after the reading of the clock. Between them the process may
        # stand still for so long that another process gets the machine's number.
        self._lease.check()
        # A clock that was set back is ignored until it has caught up.
        self._last = max(now << COUNT_BITS, self._last + 1)
        moment, count = divmod(self._last, 1 << COUNT_BITS)
        return (moment << MACHINE_BITS | self._lease.slot) << COUNT_BITS | count


@asynccontextmanager
async def generator(
    redlock: Redlock, clock: Callable[[], float] = time.time
) -> AsyncIterator[Generator]:
    """Wait for a free machine's number, and keep it while the body runs."""
    async with redlock.semaphore("machines", MACHINES) as lease:
        # The clock of the last process with this number may be ahead of ours.
        await asyncio.sleep(CLOCKS)
        yield Generator(lease, clock)


async def main(count: int) -> None:
    made = 0
    async with Redlock.from_env() as redlock:
        while made < count:
            try:
                async with generator(redlock) as ids:
                    while made < count:
                        print(ids.new_id())
                        made += 1
                        # Your work with the id.
                        await asyncio.sleep(0)
            except LockLost as error:
                # The ids made so far are unique. The next ones get another number.
                print(f"another machine's number: {error}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: id_generator.py COUNT")
    asyncio.run(main(int(sys.argv[1])))
