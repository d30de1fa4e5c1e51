"""At most LIMIT calls at a time to an outside API, in the whole fleet.

Run it with as many processes as you like:

    export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
    python examples/api_limit.py http://127.0.0.1:8000/oslo http://127.0.0.1:8000/rome

A limit of the rate, such as four calls in any second, needs one option more:
redlock.semaphore("api:weather", 4, min_hold=1).
"""

import asyncio
import sys

import httpx

from aioredlock_ng import AcquireTimeout, LockLost, Redlock

LIMIT = 4
"""Number of calls at a time."""

PATIENCE = 30.0
"""Seconds to wait while all slots are in use."""

CALL_SECONDS = 5.0
"""Seconds without a byte of an answer. Calls that hang would keep all slots in use."""


async def fetch(redlock: Redlock, client: httpx.AsyncClient, url: str) -> str:
    """Return the answer of the API.

    Raises:
        AcquireTimeout: All slots were in use for PATIENCE seconds.
    """
    slot = redlock.semaphore("api:weather", LIMIT, blocking_timeout=PATIENCE)
    while True:
        try:
            async with slot:
                answer = await client.get(url)
                return answer.raise_for_status().text
        except LockLost:
            # The slot was lost amid the call, which was cancelled. A call that only
            # reads may be repeated. The API may still work on the cancelled call, so
            # for a moment it may have one call more than LIMIT.
            continue


async def show(redlock: Redlock, client: httpx.AsyncClient, url: str) -> None:
    try:
        print(f"{url}: {await fetch(redlock, client, url)}")
    except AcquireTimeout:
        print(f"{url}: no free slot within {PATIENCE:g} s")
    except httpx.HTTPError as error:
        print(f"{url}: {error}")


async def main(urls: list[str]) -> None:
    async with (
        Redlock.from_env() as redlock,
        httpx.AsyncClient(timeout=CALL_SECONDS) as client,
        asyncio.TaskGroup() as tasks,
    ):
        for url in urls:
            tasks.create_task(show(redlock, client, url))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: api_limit.py URL …")
    asyncio.run(main(sys.argv[1:]))
