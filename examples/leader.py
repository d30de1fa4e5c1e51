"""One leader among any number of processes: who holds the lock leads, and steps down when it is lost.

Each process wants to be the one scheduler that puts jobs into a queue; end the leader in any way, and another goes on:

    export AIOREDLOCK_NG_NODES=redis://127.0.0.1:6381,redis://127.0.0.1:6382,redis://127.0.0.1:6383
    for name in ann bob cid; do python examples/leader.py redis://127.0.0.1:6379 $name & done
"""

import asyncio
import contextlib
import signal
import sys

from redis.asyncio import Redis

from aioredlock_ng import LockLost, Redlock
from aioredlock_ng.fencing import RedisFence, StaleFence

QUEUE = "jobs"
PACE = 0.05
"""Seconds between two jobs."""


async def campaign(redlock: Redlock, queue: RedisFence, name: str) -> None:
    """Lead whenever nobody else does, for ever."""
    while True:
        try:
            async with redlock.lock("leader:scheduler") as lease:  # waits, without asking again and again
                print(f"{name} leads, term {lease.fence}", flush=True)
                await lead(queue, name, lease.fence)
        except (LockLost, StaleFence) as error:
            # lead() was cancelled on the spot; or it stood still for so long that the queue has seen a newer leader.
            print(f"{name} stepped down: {error}", flush=True)


async def lead(queue: RedisFence, name: str, term: int) -> None:
    """Put jobs into the queue, which takes none from a leader of an earlier term."""
    number = 0
    while True:
        number += 1
        await queue.execute("RPUSH", QUEUE, f"{term}/{number} by {name}", fence=term)
        await asyncio.sleep(PACE)


async def main(url: str, name: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    # Told to go, the leader releases the lock, and the next one leads at once.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    # Without socket_timeout: with one, redis-py can swallow a cancellation on Python 3.11.
    async with Redlock.from_env() as redlock, Redis.from_url(url, socket_timeout=None) as client:
        await campaign(redlock, RedisFence(client), name)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: leader.py URL NAME")
    with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
