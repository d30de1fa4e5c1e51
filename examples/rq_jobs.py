"""Jobs of RQ. The jobs of one account run one at a time, with any number of workers.

export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
export BROKER=redis://127.0.0.1:6379 BANK=/tmp/bank; mkdir -p $BANK
rq worker --url $BROKER --with-scheduler & rq worker --url $BROKER --with-scheduler &
python -m examples.rq_jobs ann 5
"""

import os
import sys
import time
from pathlib import Path

from redis import Redis
from rq import Queue, Retry

from aioredlock_ng.integrations.rq import locked
from aioredlock_ng.sync import Redlock

BANK = Path(os.environ.get("BANK", "."))
"""Stands for your database: a file per account.

Reading and writing are two steps, and other jobs run in between.
"""

# The process of each job opens it.
redlock = Redlock.from_env()
# A scheduler puts a job back into the queue: `rq worker --with-scheduler`.
again = Retry(max=20, interval=1)


@locked(redlock, "account:{account}", held=again, blocking_timeout=2)
def deposit(account, amount):
    balance = read(account)
    # The bookkeeping.
    time.sleep(0.01)
    # Raises LockLost after a loss. No I/O.
    redlock.current_lease.check()
    write(account, balance + amount)


def read(account):
    file = BANK / account
    return int(file.read_text()) if file.exists() else 0


def write(account, balance):
    new = BANK / f"{account}.new"
    new.write_text(str(balance))
    new.rename(BANK / account)


if __name__ == "__main__":
    queue = Queue(
        connection=Redis.from_url(os.environ.get("BROKER", "redis://127.0.0.1:6379"))
    )
    for _ in range(int(sys.argv[2])):
        queue.enqueue("examples.rq_jobs.deposit", sys.argv[1], 1)
