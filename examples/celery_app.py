"""Tasks of Celery. Any number of workers runs the tasks of one account one at a time.

export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
export BROKER=redis://127.0.0.1:6379 BANK=/tmp/bank; mkdir -p $BANK
celery -A examples.celery_app worker & celery -A examples.celery_app worker &
python -m examples.celery_app ann 5
"""

import os
import sys
import time
from pathlib import Path

from celery import Celery

from aioredlock_ng.integrations.celery import locked
from aioredlock_ng.sync import Redlock

BANK = Path(os.environ.get("BANK", "."))
"""Stands for your database: a file per account.

Reading and writing are two steps, and other tasks run in between.
"""

BROKER = os.environ.get("BROKER", "redis://127.0.0.1:6379")

app = Celery("examples.celery_app", broker=BROKER, backend=BROKER)
# Each process of a worker opens it at its first use.
redlock = Redlock.from_env()


# A task that does not get its lock within 2 s goes back into the queue for a second.
@app.task(max_retries=20, default_retry_delay=1)
@locked(redlock, "account:{account}", held="retry", blocking_timeout=2)
def deposit(account, amount):
    balance = read(account)
    # The bookkeeping.
    time.sleep(0.01)
    # Raises LockLost after a loss. No I/O.
    redlock.current_lease.check()
    write(account, balance + amount)


# Started every minute. If the last run still works, this run is not done.
@app.task
@locked(redlock, "report", held="skip", blocking_timeout=0)
def report():
    return sum(read(file.name) for file in BANK.iterdir())


def read(account):
    file = BANK / account
    return int(file.read_text()) if file.exists() else 0


def write(account, balance):
    new = BANK / f"{account}.new"
    new.write_text(str(balance))
    new.rename(BANK / account)


if __name__ == "__main__":
    for _ in range(int(sys.argv[2])):
        deposit.delay(sys.argv[1], 1)
