"""One leader among any number of processes.

The leader steps down before another process can lead. Here the leader puts jobs into a
queue. End the leader in any way, and another process leads:

    export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
    for name in ann bob cid; do
        python examples/leader.py redis://127.0.0.1:6379 $name &
    done
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
    """Lead whenever no other process does, for ever."""
    election = redlock.election("leader:scheduler", label=name)
    while True:
        try:
            # Waits without polling.
            async with election as lease:
                print(f"{name} leads, term {lease.fence}", flush=True)
                await lead(queue, name, lease.fence)
        except (LockLost, StaleFence) as error:
            # LockLost: lead() was cancelled, in time if only the renewals failed.
            # StaleFence: this process stood still for so long that the queue has seen
            # a newer leader.
            print(f"{name} stepped down: {error}", flush=True)


async def lead(queue: RedisFence, name: str, term: int) -> None:
    """Put jobs into the queue. It refuses jobs from a leader of an earlier term."""
    number = 0
    while True:
        number += 1
        await queue.execute("RPUSH", QUEUE, f"{term}/{number} by {name}", fence=term)
        await asyncio.sleep(PACE)


async def main(url: str, name: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    # On SIGTERM the leader releases the lock, and the next one leads at once.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    # With a socket_timeout, redis-py can swallow a cancellation on Python 3.11.
    client = Redis.from_url(url, socket_timeout=None)
    async with Redlock.from_env() as redlock, client:
        await campaign(redlock, RedisFence(client), name)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: leader.py URL NAME")
    with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
