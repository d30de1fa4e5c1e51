"""Jobs for a real worker of RQ."""

from __future__ import annotations

from rq import Retry, get_current_job

from aioredlock_ng.integrations.rq import locked
from tests.integrations.queue_tasks import redlock, stay


@locked(redlock, "job:{name}", blocking_timeout=0)
def failing(name: str) -> int:
    return stay(name)


@locked(redlock, "job:{name}", held="skip", blocking_timeout=0)
def skipping(name: str) -> int:
    return stay(name)


@locked(redlock, "job:{name}", held=Retry(max=1000), blocking_timeout=0.05)
def repeating(name: str) -> int:
    return stay(name)


@locked(redlock, "job:{name}", held=Retry(max=2), blocking_timeout=0)
def giving_up(name: str) -> int:
    return stay(name)


def job_id() -> str | None:
    job = get_current_job()
    return None if job is None else f"job {job.id}"


@locked(redlock, "job:{name}", owner=job_id, blocking_timeout=0)
def labelled(name: str) -> int:
    return stay(name)


@locked(redlock, "room", limit=2, blocking_timeout=0)
def sharing(name: str) -> int:
    return stay(name)


@locked(redlock, "room", shared=True, blocking_timeout=0)
def reading(name: str) -> int:
    return stay(name)


@locked(redlock, "daily:{name}", held="skip", min_hold=50, blocking_timeout=0)
def daily(name: str) -> int:
    return int(redlock.current_lease.fence)


@locked(redlock, "job:{name}", ttl=5.0)
def short(name: str) -> int:
    return stay(name)


def forgetful(name: str) -> None:
    redlock.lock(f"left:{name}").acquire()
