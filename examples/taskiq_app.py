"""Tasks of taskiq: any number of workers, and the tasks of one account run one at a time, whatever worker they are in.

export AIOREDLOCK_NG_NODES=redis://127.0.0.1:6381,redis://127.0.0.1:6382,redis://127.0.0.1:6383
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
"""Stands for your database: a file per account. Reading and writing are two steps, and others come in between."""

# A task that did not get its lock, or lost it, goes back into the queue; any other error of a task is left as it is.
retries = SimpleRetryMiddleware(
    default_retry_count=20, default_retry_label=True, types_of_exceptions=(LockNotAcquired, LockLost)
)
url = os.environ.get("BROKER", "redis://127.0.0.1:6379")
# Acknowledged when done: what a killed worker had is given to another, under a lock of its own, which is to end as well.
# Without socket_timeout: with one, redis-py 8 swallows a cancellation on Python 3.11, and a worker told to stop would not.
broker = RedisStreamBroker(url, unacknowledged_lock_timeout=10, socket_timeout=None).with_middlewares(retries)
redlock = Redlock.from_env()  # opened in the worker: a Redlock belongs to one event loop and one process


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def open_redlock(state: TaskiqState) -> None:
    await redlock.open()


@broker.on_event(TaskiqEvents.WORKER_SHUTDOWN)
async def close_redlock(state: TaskiqState) -> None:
    await redlock.aclose()


@broker.task(task_name="deposit")  # the same in a worker and in a program that puts it into the queue
@redlock.guard("account:{account}", blocking_timeout=2)  # below the task, directly above the function
async def deposit(account: str, amount: int) -> None:
    balance = read(account)
    await asyncio.sleep(0.01)  # the bookkeeping
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
