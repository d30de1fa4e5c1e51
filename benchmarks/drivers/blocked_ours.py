"""Hold leases of aioredlock_ng while the event loop blocks, and count the lost leases.

The task has `urls`, `leases`, `ttl`, `thread` and `seconds`. The driver prints one JSON line when
all leases are held. After a line on stdin it blocks the loop and prints a second JSON line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from aioredlock_ng import Lease, Redlock

_AT_ONCE = 100


async def _drive(task: dict[str, Any]) -> None:
    redlock = await Redlock(task["urls"], ttl=task["ttl"], thread=task["thread"]).open()
    names, leases = iter(range(task["leases"])), list[Lease]()

    async def take() -> None:
        for name in names:
            leases.append(await redlock.lock(f"lease:{name}").acquire())

    await asyncio.gather(*(take() for _ in range(_AT_ONCE)))
    _say({"ready": True, "held": sum(lease.valid for lease in leases)})
    await asyncio.to_thread(sys.stdin.readline)
    # The loop must block here, as a synchronous call in a coroutine would block it.
    time.sleep(task["seconds"])  # noqa: ASYNC251
    _say({"lost": sum(lease.lost for lease in leases)})


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(_drive(json.loads(sys.argv[1])))
    os._exit(0)
