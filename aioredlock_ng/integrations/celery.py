"""Provide locks for Celery: a decorator for tasks.

The module needs the extra `celery`. `import aioredlock_ng` does not import Celery.
"""

from __future__ import annotations

from contextlib import suppress
from inspect import unwrap
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
    from collections.abc import Callable
    from typing import Unpack

    from aioredlock_ng import LockNotAcquired
    from aioredlock_ng.sync import GuardOptions, Redlock
    from aioredlock_ng.sync.guarded import Guard

__all__ = ["locked"]

_managers: Final[WeakSet[Redlock]] = WeakSet()
"""The managers of all tasks.

Each process of a worker closes the managers when it ends. Celery's signal is used for this purpose,
because a worker's process does not run its `atexit` functions.
"""


def locked(
    redlock: Redlock,
    template: str,
    *,
    held: Literal["raise", "skip", "retry"] = "raise",
    limit: int | None = None,
    shared: bool = False,
    **options: Unpack[GuardOptions],
) -> Guard:
    """Run each call of a task under a lock. The lock's name may contain the task's arguments.

    Write the decorator directly above the `def`, below `@app.task`. In the task,
    `redlock.current_lease` is the lease.

    Args:
        redlock: The manager, made at import time. Each process of a worker opens the manager at its
            first use.
        template: The lock's name, with parameters of the function: "account:{account}".
        held: The effect on a task that does not get its lock. "raise": the task fails with the
            error. "retry": the task is repeated, as its `max_retries` and `default_retry_delay`
            say. "skip": the task is not run, and its state is REVOKED. Even with "skip", the task
            fails if no quorum of nodes can grant the lock. A call of the function from another task
            always raises the error.
        limit: Number of tasks, 1 to 1,000, that may run at a time under one name. The tasks then
            share a semaphore in place of a lock. None: one task at a time, under a lock.
        shared: If True, the lock is `rwlock(name).read()`. Tasks with the same lock name may then
            run at the same time. A lock of the same name without `shared` is a writer.
        options: As for `Redlock.lock`. `blocking_timeout` is the longest wait in seconds. With
            "retry" and "skip", its default is 0, no wait. With "raise", the default is to wait
            without limit. `min_hold` is the shortest time for which the lock or slot stays taken,
            even if the task is shorter. `owner` is a text with placeholders like those of the name,
            or a function with some of the task's parameters. With `bind=True`,
            `owner="task {self.request.id}"` shows the task's id.

    Raises:
        ConfigurationError: An argument is invalid. A call of the task raises this error if a value
            contains the separator that follows its placeholder, or has no text that is the same in
            all processes. A call also raises this error if the text for `owner` is not one
            printable line of at most 200 bytes.

    Safety: the lock is released when the task returns or raises, at its soft time limit, and at
    `revoke(terminate=True)`. At the hard time limit Celery sends SIGKILL, and the lock expires.
    """
    refusals = {"raise": None, "skip": _skip, "retry": _retry}
    if held not in refusals:
        raise ConfigurationError(f"held must be one of {', '.join(refusals)}, got {held!r}")
    if held != "raise":
        options = {"blocking_timeout": 0.0, **options}
    guard = task_guard(redlock, template, limit, shared, options, refusals[held])
    _managers.add(redlock)
    return guard


def _skip(error: LockNotAcquired, function: Callable[..., Any]) -> NoReturn:
    task = _task_of(function)
    if task is None or not is_held(error):
        raise error
    request = task.request
    if not request.is_eager:
        # If the task had no final state, a caller would wait for its result for ever.
        task.backend.mark_as_revoked(
            request.id, str(error), request=request, store_result=not _ignores_result(task)
        )
    raise Ignore(str(error)) from error


def _retry(error: LockNotAcquired, function: Callable[..., Any]) -> NoReturn:
    task = _task_of(function)
    if task is None:
        raise error
    raise task.retry(exc=error)


def _task_of(function: Callable[..., Any]) -> Any:
    """Return the task that Celery runs now, or None if a caller expects the function's result."""
    task = current_task
    # The task may belong to another function, which calls this one and expects its result.
    if not task or task.request.called_directly or unwrap(task.run) is not unwrap(function):
        return None
    return task


def _ignores_result(task: Any) -> bool:
    wanted = getattr(task.request, "ignore_result", None)
    return bool(task.ignore_result if wanted is None else wanted)


@worker_process_shutdown.connect  # type: ignore[untyped-decorator,unused-ignore]
def _close(**_: object) -> None:
    for redlock in list(_managers):
        # An error of one manager must not leave the other managers open.
        with suppress(Exception):
            redlock.close()
