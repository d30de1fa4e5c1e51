"""Make the decorators for the tasks of Celery and the jobs of RQ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from aioredlock_ng import AcquireTimeout, ConfigurationError, LockHeld, LockNotAcquired
from aioredlock_ng._core.request_labels import label_template
from aioredlock_ng.guarded import described
from aioredlock_ng.sync import Redlock
from aioredlock_ng.sync.guarded import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioredlock_ng.sync.guarded import Guard

__all__ = ["is_held", "task_guard"]

P = ParamSpec("P")
R = TypeVar("R")


def is_held(error: LockNotAcquired) -> bool:
    """Return True if other clients held the lock, and False if no quorum could grant the lock."""
    return isinstance(error, LockHeld | AcquireTimeout)


def task_guard(
    redlock: Redlock,
    template: str,
    limit: int | None,
    shared: bool,
    options: Mapping[str, Any],
    refused: Callable[[LockNotAcquired, Callable[..., Any]], Any] | None,
) -> Guard:
    """Make the decorator for the functions of a task queue.

    `template`, `limit`, `shared` and `options` are arguments of `Redlock.guard`. If the lock is not
    acquired, `refused` is called with the error and the function, in place of the function. Without
    `refused`, the call raises the error.

    Raises:
        ConfigurationError: An argument is invalid.
    """
    if not isinstance(redlock, Redlock):
        raise ConfigurationError(
            "locked() takes a manager of aioredlock_ng.sync first, like @locked(redlock,"
            f' "job:{{job_id}}"), not {type(redlock).__name__}'
        )
    options = dict(options)
    owner = label_template(options.pop("owner", None))
    guard = guarded(
        lambda name, label: described(redlock, (name,), options, limit, shared=shared, owner=label),
        template,
        owner,
        decorator="locked",
        example="@locked(redlock, ",
        refused=refused,
    )

    def decorate(function: Callable[P, R], /) -> Callable[P, R]:
        if hasattr(function, "delay"):
            raise ConfigurationError(
                f"locked({template!r}) was given a task, and would turn it into a plain function;"
                " write @locked directly above the `def`, below the decorator that makes the task"
            )
        return guard(function)

    return decorate
