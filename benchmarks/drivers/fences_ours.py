"""Count the second fence rounds of two managers whose wall clocks differ.

Both managers of aioredlock_ng acquire locks of the same names. The task in `argv[1]` has `urls`,
`apart` (seconds), `learn` and `seconds`. The driver prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from aioredlock_ng import Redlock

if TYPE_CHECKING:
    from aioredlock_ng import Stats

NAMES = 20
WORKERS = 10


async def main(task: dict[str, Any]) -> None:
    def shifted() -> float:
        return time.time() + task["apart"]

    highest: dict[str, int] = {}
    wrong = 0

    async def work(redlock: Redlock, number: int) -> None:
        nonlocal wrong
        while True:
            name = f"fences:{number % NAMES}"
            number += 7
            async with redlock.lock(name) as lease:
                assert lease.fence is not None
                wrong += lease.fence <= highest.get(name, 0)
                highest[name] = lease.fence

    async with Redlock(task["urls"]) as slow, Redlock(task["urls"], wall_clock=shifted) as fast:
        workers = [
            asyncio.create_task(work(redlock, number))
            for number in range(WORKERS)
            for redlock in (slow, fast)
        ]
        await asyncio.sleep(task["learn"])
        before = [slow.stats(), fast.stats()]
        await asyncio.sleep(task["seconds"])
        after = [slow.stats(), fast.stats()]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def counted(figure: str, of: list[Stats]) -> int:
        return sum(getattr(stats, figure) for stats in of)

    print(
        json.dumps(
            {
                "acquired": counted("acquired", after) - counted("acquired", before),
                "second_rounds": counted("second_rounds", after) - counted("second_rounds", before),
                "learning": counted("second_rounds", before),
                "wrong": wrong,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
