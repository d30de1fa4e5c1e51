"""Provide locks for RQ: a decorator for the functions of jobs.

The module needs the extra `rq`. Only an import of this module imports RQ.
"""

from __future__ import annotations

import functools
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
    from aioredlock_ng.sync import LockOptions, Redlock
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
    **options: Unpack[LockOptions],
) -> Guard:
    """Run each call of a job's function under a lock, named by the arguments.

    Write it directly above the `def`, below `@job`. `redlock.current_lease` is the lease.

    Args:
        redlock: The manager, made at import time. A worker forks a process for each job, which
            opens the manager.
        template: The lock's name, with parameters of the function: "account:{account}".
        held: The end of a job that does not get its lock. "raise": the job fails with the error.
            `Retry(max=20, interval=5)`: the job is repeated so often and at this interval. "skip":
            if another client holds the lock, the job finishes without a run, and `job.meta` has
            the key `SKIPPED`. If no quorum of nodes can grant, it fails.
        options: As for `Redlock.lock`. `blocking_timeout` limits the wait.

    Raises:
        ConfigurationError: An argument is invalid. At the call: a value without a stable text.

    Safety: the lock is released however the function ends, also by the job's timeout or by SIGTERM.
    RQ stops a job by SIGKILL, which lets the lock expire.
    """
    if not isinstance(held, Retry) and held not in ("raise", "skip"):
        raise ConfigurationError(f"held must be raise, skip or a Retry of rq, got {held!r}")

    def refused(error: LockNotAcquired) -> Retry | None:
        job = get_current_job()
        if job is None or held == "raise":
            raise error
        if isinstance(held, Retry):
            return held
        if not is_held(error):
            raise error
        job.meta[SKIPPED] = error.resource
        job.save_meta()  # type: ignore[no-untyped-call]
        return None

    guard = task_guard(redlock, template, options, refused)

    def decorate(function: Callable[P, R], /) -> Callable[P, R]:
        guarded = guard(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            with ending_by_sigterm():
                return guarded(*args, **kwargs)

        return call

    return decorate
