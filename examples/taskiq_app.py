"""Tasks of taskiq. Any number of workers runs the tasks of one account one at a time.

export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
export BROKER=redis://127.0.0.1:6379 BANK=/tmp/bank; mkdir -p $BANK
taskiq worker examples.taskiq_app:broker --workers 2 &
python -m examples.taskiq_app ann 5
"""

import asyncio
import os
import sys
from pathlib import Path

from taskiq import SimpleRetryMiddleware, TaskiqEvents, TaskiqState
from taskiq_redis import RedisStreamBroker

from aioredlock_ng import LockLost, LockNotAcquired, Redlock

BANK = Path(os.environ.get("BANK", "."))
"""Stands for your database: a file per account.

Reading and writing are two steps, and other tasks run in between.
"""

# A task that did not get its lock, or lost it, goes back into the queue. A task with
# any other error does not.
retries = SimpleRetryMiddleware(
    default_retry_count=20,
    default_retry_label=True,
    types_of_exceptions=(LockNotAcquired, LockLost),
)
# A task is acknowledged when it is done, so the task of a killed worker is given to
# another. The broker guards that by a lock of its own, and that lock must expire too.
# With a socket_timeout, redis-py 8 swallows a cancellation on Python 3.11, and the
# worker would not stop.
broker = RedisStreamBroker(
    os.environ.get("BROKER", "redis://127.0.0.1:6379"),
    unacknowledged_lock_timeout=10,
    socket_timeout=None,
).with_middlewares(retries)
# The worker opens it. A Redlock belongs to one event loop and one process.
redlock = Redlock.from_env()


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def open_redlock(state: TaskiqState) -> None:
    await redlock.open()


@broker.on_event(TaskiqEvents.WORKER_SHUTDOWN)
async def close_redlock(state: TaskiqState) -> None:
    await redlock.aclose()


# The guard stands below the task, directly above the function. The task's name is the
# same in a worker and in a program that puts the task into the queue.
@broker.task(task_name="deposit")
@redlock.guard("account:{account}", blocking_timeout=2)
async def deposit(account: str, amount: int) -> None:
    balance = read(account)
    # The bookkeeping.
    await asyncio.sleep(0.01)
    write(account, balance + amount)


def read(account: str) -> int:
    file = BANK / account
    return int(file.read_text()) if file.exists() else 0


def write(account: str, balance: int) -> None:
    new = BANK / f"{account}.new"
    new.write_text(str(balance))
    new.rename(BANK / account)


async def main(account: str, times: int) -> None:
    await broker.startup()
    for _ in range(times):
        await deposit.kiq(account, 1)
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
