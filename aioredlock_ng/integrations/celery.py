"""Provide locks for Celery: a decorator for tasks.

The module needs the extra `celery`. Only an import of this module imports Celery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn
from weakref import WeakSet

from aioredlock_ng import ConfigurationError

from ._tasks import is_held, task_guard

try:
    from celery import current_task
    from celery.exceptions import Ignore
    from celery.signals import worker_process_shutdown
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f'{__name__} needs celery: install aioredlock-ng with its extra "celery"',
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from typing import Unpack

    from aioredlock_ng import LockNotAcquired
    from aioredlock_ng.sync import LockOptions, Redlock
    from aioredlock_ng.sync.guarded import Guard

__all__ = ["locked"]

_managers: Final[WeakSet[Redlock]] = WeakSet()
"""The managers of all tasks.

A process of a worker closes them at its end. It ends without the exit functions of Python.
"""


def locked(
    redlock: Redlock,
    template: str,
    *,
    held: Literal["raise", "skip", "retry"] = "raise",
    **options: Unpack[LockOptions],
) -> Guard:
    """Run each call of a task under a lock, named by the task's arguments.

    Write it directly above the `def`, below `@app.task`. `redlock.current_lease` is the lease.

    Args:
        redlock: The manager, made at import time. Each process of a worker opens it at its first
            use.
        template: The lock's name, with parameters of the function: "account:{account}".
        held: The end of a task that does not get its lock. "raise": the task fails with the error.
            "retry": the task is repeated, as often and with the delay that `max_retries` and
            `default_retry_delay` of the task say. "skip": if another client holds the lock, the
            task is not run, and its state is REVOKED. If no quorum of nodes can grant, it fails.
        options: As for `Redlock.lock`. `blocking_timeout` limits the wait.

    Raises:
        ConfigurationError: An argument is invalid. At the call: a value without a stable text.

    Safety: the lock is released however the task ends, also by a time limit or by
    `revoke(terminate=True)`. SIGKILL, which follows the hard time limit, lets it expire.
    """
    refusals = {"raise": None, "skip": _skip, "retry": _retry}
    if held not in refusals:
        raise ConfigurationError(f"held must be one of {', '.join(refusals)}, got {held!r}")
    guard = task_guard(redlock, template, options, refusals[held])
    _managers.add(redlock)
    return guard


def _skip(error: LockNotAcquired) -> NoReturn:
    task = current_task
    if not task or task.request.called_directly or not is_held(error):
        raise error
    request = task.request
    if not request.is_eager:
        # Without a final state, a caller would wait for the result for ever.
        task.backend.mark_as_revoked(
            request.id, str(error), request=request, store_result=not _ignores_result(task)
        )
    raise Ignore(str(error)) from error


def _retry(error: LockNotAcquired) -> NoReturn:
    if not current_task:
        raise error
    raise current_task.retry(exc=error)


def _ignores_result(task: Any) -> bool:
    wanted = getattr(task.request, "ignore_result", None)
    return bool(task.ignore_result if wanted is None else wanted)


@worker_process_shutdown.connect  # type: ignore[untyped-decorator,unused-ignore]
def _close(**_: object) -> None:
    for redlock in list(_managers):
        redlock.close()
