"""Tasks for a real worker of Celery."""

from __future__ import annotations

import os

from celery import Celery

from aioredlock_ng.integrations.celery import locked
from tests.integrations.queue_tasks import FOLDER, redlock, stay

BROKER = os.environ.get("BROKER", "memory://")

app = Celery(
    "tests", broker=BROKER, backend=BROKER if "BROKER" in os.environ else "cache+memory://"
)
# A test fetches a result long after the task.
app.conf.broker_connection_retry_on_startup = True


@app.task
@locked(redlock, "job:{name}", blocking_timeout=0)
def failing(name: str) -> int:
    return stay(name)


@app.task
@locked(redlock, "job:{name}", held="skip", blocking_timeout=0)
def skipping(name: str) -> int:
    return stay(name)


@app.task(max_retries=1000, default_retry_delay=0.1)
@locked(redlock, "job:{name}", held="retry", blocking_timeout=0)
def retrying(name: str) -> int:
    return stay(name)


@app.task(max_retries=2, default_retry_delay=0)
@locked(redlock, "job:{name}", held="retry", blocking_timeout=0)
def giving_up(name: str) -> int:
    return stay(name)


@app.task
@locked(redlock, "job:{name}", ttl=5.0)
def short(name: str) -> int:
    return stay(name)


@app.task(soft_time_limit=1)
@locked(redlock, "job:{name}")
def limited(name: str) -> int:
    return stay(name)


@app.task
@locked(redlock, "room", limit=2, blocking_timeout=0)
def sharing(name: str) -> int:
    return stay(name)


@app.task
@locked(redlock, "room", shared=True, blocking_timeout=0)
def reading(name: str) -> int:
    return stay(name)


@app.task
@locked(redlock, "daily:{name}", held="skip", min_hold=50, blocking_timeout=0)
def daily(name: str) -> int:
    return int(redlock.current_lease.fence)


@app.task
@locked(redlock, "job:{name}")
def forgetful(name: str) -> None:
    redlock.lock(f"left:{name}").acquire()
    (FOLDER / f"{name}.begun").touch()
