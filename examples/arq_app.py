"""Jobs of arq. The jobs of one account run one at a time, with any number of workers.

export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
export BROKER=redis://127.0.0.1:6379 BANK=/tmp/bank; mkdir -p $BANK
arq examples.arq_app.WorkerSettings & arq examples.arq_app.WorkerSettings &
python -m examples.arq_app ann 5
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from arq import Retry, create_pool
from arq.connections import RedisSettings

from aioredlock_ng import LockLost, LockNotAcquired, Redlock

BANK = Path(os.environ.get("BANK", "."))
"""Stands for your database: a file per account.

Reading and writing are two steps, and other jobs run in between.
"""

BROKER = RedisSettings.from_dsn(os.environ.get("BROKER", "redis://127.0.0.1:6379"))

# The worker opens it. A Redlock belongs to one event loop and one process.
redlock = Redlock.from_env()


async def open_redlock(context: dict[str, Any]) -> None:
    await redlock.open()


async def close_redlock(context: dict[str, Any]) -> None:
    await redlock.aclose()


@redlock.guard("account:{account}", blocking_timeout=2)
async def add(account: str, amount: int) -> None:
    balance = read(account)
    # The bookkeeping.
    await asyncio.sleep(0.01)
    write(account, balance + amount)


async def deposit(context: dict[str, Any], account: str, amount: int) -> None:
    try:
        await add(account, amount)
    except (LockNotAcquired, LockLost) as error:
        # After any other exception arq does not repeat the job.
        raise Retry(defer=0.1) from error


def read(account: str) -> int:
    file = BANK / account
    return int(file.read_text()) if file.exists() else 0


def write(account: str, balance: int) -> None:
    new = BANK / f"{account}.new"
    new.write_text(str(balance))
    new.rename(BANK / account)


class WorkerSettings:
    functions = (deposit,)
    on_startup = open_redlock
    on_shutdown = close_redlock
    redis_settings = BROKER
    max_tries = 20


async def main(account: str, times: int) -> None:
    queue = await create_pool(BROKER)
    for _ in range(times):
        await queue.enqueue_job("deposit", account, 1)
    await queue.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
