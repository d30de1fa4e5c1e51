"""Provide locks for RQ: a decorator for the functions of jobs.

The module needs the extra `rq`. `import aioredlock_ng` does not import RQ.
"""

from __future__ import annotations

import functools
from inspect import unwrap
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from aioredlock_ng import ConfigurationError

from ._sigterm import ending_by_sigterm
from ._tasks import is_held, task_guard

try:
    from rq import Retry, get_current_job
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f'{__name__} needs rq: install aioredlock-ng with its extra "rq"',
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from aioredlock_ng import LockNotAcquired
    from aioredlock_ng.sync import GuardOptions, Redlock
    from aioredlock_ng.sync.guarded import Guard

__all__ = ["SKIPPED", "locked"]

SKIPPED = "skipped_for_lock"
"""Key in `job.meta` of a job that was skipped. The value is the name of the lock."""

P = ParamSpec("P")
R = TypeVar("R")


def locked(
    redlock: Redlock,
    template: str,
    *,
    held: Literal["raise", "skip"] | Retry = "raise",
    limit: int | None = None,
    shared: bool = False,
    **options: Unpack[GuardOptions],
) -> Guard:
    """Run each call of a job's function under a lock.

    The lock's name may contain the function's arguments. Write the decorator directly above the
    `def`, below `@job`. In the function, `redlock.current_lease` is the lease.

    Args:
        redlock: The manager, made at import time. A worker forks a process for each job, and each
            process opens the manager at its first use.
        template: The lock's name, with parameters of the function: "account:{account}".
        held: The effect on a job that does not get its lock. "raise": the job fails with the error.
            `Retry(max=20, interval=5)`: the job is repeated up to 20 times, every 5 seconds.
            "skip": the function is not called, the job finishes, and `job.meta` has the key
            `SKIPPED`. Even with "skip", the job fails if no quorum of nodes can grant the lock. A
            call of the function from the function of another job always raises the error.
        limit: Number of jobs, 1 to 1,000, that may run at a time under one name. The jobs then
            share a semaphore in place of a lock. None: one job at a time, under a lock.
        shared: If True, the lock is `rwlock(name).read()`. Jobs with the same lock name may then
            run at the same time. A lock of the same name without `shared` is a writer.
        options: As for `Redlock.lock`. `blocking_timeout` is the longest wait in seconds. With a
            `Retry` or "skip", its default is 0, no wait. With "raise", the default is to wait
            without limit. `min_hold` is the shortest time for which the lock or slot stays taken,
            even if the job is shorter. `owner` is a text with placeholders like those of the name,
            or a function with some of the job's parameters. `owner=lambda: rq.get_current_job().id`
            shows the job's id.

    Raises:
        ConfigurationError: An argument is invalid. A call of the function raises this error if a
            value contains the separator that follows its placeholder, or has no text that is the
            same in all processes. A call also raises this error if the text for `owner` is not one
            printable line of at most 200 bytes.

    Safety: the lock is released when the function returns or raises, at the job's timeout, and at
    SIGTERM. RQ's stop command ends a running job by SIGKILL, and the lock expires.
    """
    if not isinstance(held, Retry) and held not in ("raise", "skip"):
        raise ConfigurationError(f"held must be raise, skip or a Retry of rq, got {held!r}")
    if held != "raise":
        options = {"blocking_timeout": 0.0, **options}

    def refused(error: LockNotAcquired, function: Callable[..., Any]) -> Retry | None:
        job = get_current_job()
        # The job may belong to another function, which calls this one and expects its result.
        if job is None or held == "raise" or unwrap(job.func) is not unwrap(function):
            raise error
        if isinstance(held, Retry):
            return held
        if not is_held(error):
            raise error
        job.meta[SKIPPED] = error.resource
        job.save_meta()  # type: ignore[no-untyped-call]
        return None

    guard = task_guard(redlock, template, limit, shared, options, refused)

    def decorate(function: Callable[P, R], /) -> Callable[P, R]:
        guarded = guard(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            with ending_by_sigterm():
                return guarded(*args, **kwargs)

        return call

    return decorate
