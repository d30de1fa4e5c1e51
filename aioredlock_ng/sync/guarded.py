"""Decorate plain functions, so that each call runs under a lock named after the arguments.

This module makes `Redlock.guard`, and the decorators for the jobs of task queues in
`aioredlock_ng.integrations`.
"""

from __future__ import annotations

import functools
import inspect
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from aioredlock_ng._core.request_labels import labels_of_calls
from aioredlock_ng.errors import ConfigurationError, LockNotAcquired, UpgradeRefused
from aioredlock_ng.guarded import NameTemplate, called, check_guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.request_labels import LabelTemplate
    from aioredlock_ng.sync._lock import Lock

__all__ = ["Guard", "guarded", "names_of_calls", "refuse_unrun"]

P = ParamSpec("P")
R = TypeVar("R")

_UNRUN = (CoroutineType, GeneratorType, AsyncGeneratorType)


class Guard(Protocol):
    """A decorator of plain functions that keeps their signature."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate a function."""


def names_of_calls(template: str, function: Callable[..., object], decorator: str) -> NameTemplate:
    """Return the template that names the lock of each call of a plain function.

    `decorator` is the name of the decorator in error messages.

    Raises:
        ConfigurationError: The function is not a plain function, or the template does not fit the
            function.
    """
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{decorator}({template!r}) of aioredlock_ng.sync is for functions defined by"
            " `def`; use aioredlock_ng.Redlock for coroutine functions"
        )
    if inspect.isgeneratorfunction(function):
        raise ConfigurationError(
            f"{decorator}({template!r}) cannot hold a lock for the generator"
            f" {called(function)}(), whose caller may never end it; use"
            " `with redlock.lock(...)` where its values are used"
        )
    # Python can call a static method above, but an instance would then pass itself to it.
    if isinstance(function, staticmethod) or not callable(function):
        raise ConfigurationError(
            f"{decorator}({template!r}) is for functions defined by `def`, not {function!r}; write"
            " it directly above the `def`, below every other decorator"
        )
    return NameTemplate(template, function, decorator)


def refuse_unrun(result: object, function: Callable[..., object]) -> None:
    """Refuse the result of a function that would do its work after the release of the lock.

    The function is defined by `def`, but only returns the coroutine or the generator of another
    function. An example is a decorator that turns a coroutine function into a plain function.

    Raises:
        ConfigurationError: `result` is a coroutine or a generator.
    """
    if not isinstance(result, _UNRUN):
        return
    if isinstance(result, CoroutineType):
        # Without this call, Python would warn that the coroutine was never awaited.
        result.close()
    raise ConfigurationError(
        f"{called(function)}() returned a {type(result).__name__}, which would run after the"
        " release of the lock; acquire the lock in the function that does the work"
    )


def guarded(
    lock: Callable[[str, str | None], Lock],
    template: str,
    owner: LabelTemplate | None,
    *,
    decorator: str = "guard",
    example: str = "@redlock.guard(",
    refused: Callable[[LockNotAcquired, Callable[..., Any]], Any] | None = None,
) -> Guard:
    """Make a decorator that runs each call of a function under a lock.

    Args:
        lock: Takes a name and a label, and returns the lock.
        template: The name, with placeholders for arguments; see
            `aioredlock_ng.guarded.NameTemplate`.
        owner: The template of the label. None: the label of the manager.
        decorator: Name of the decorator in errors.
        example: The beginning of a correct use, shown in errors.
        refused: Called with the error and the function, in place of the function, if the lock is
            not acquired. The call then returns the result of `refused`. None: the call raises the
            error. The call always raises `UpgradeRefused`.

    Raises:
        ConfigurationError: The template is not a str, or an option is invalid.
    """
    check_guard(lambda name: lock(name, None), template, example)

    def decorate(function: Callable[P, R], /) -> Callable[P, R]:
        names = names_of_calls(template, function, decorator)
        labels = labels_of_calls(owner, function, f"{decorator}({template!r})")

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            held, lease = lock(names.name(*args, **kwargs), labels(args, kwargs)), None
            try:
                with held as lease:
                    result = function(*args, **kwargs)
                    refuse_unrun(result, function)
                    return result
            except LockNotAcquired as error:
                # If there is a lease, the error comes from a lock that the function acquires. An
                # `UpgradeRefused` is a mistake of the caller, which a later call would repeat.
                if refused is None or lease is not None or isinstance(error, UpgradeRefused):
                    raise
                return refused(error, function)  # type: ignore[no-any-return]
            except BaseException:
                # A time limit of Celery may end the `with` before its `__exit__` begins. Without
                # this call, the worker would renew the lease for ever.
                if lease is not None:
                    held.leave(lease)
                raise

        # Celery checks the arguments of a task by `__signature__`, and ignores `__wrapped__`.
        call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return call

    return decorate
