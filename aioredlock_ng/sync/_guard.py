"""Define the decorator behind `Redlock.guard`, which names a lock by the arguments of a call."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from aioredlock_ng.errors import ConfigurationError
from aioredlock_ng.guarded import NameTemplate, check_guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.sync._lock import Lock

__all__ = ["Guard", "guarded"]

P = ParamSpec("P")
R = TypeVar("R")


class Guard(Protocol):
    """A decorator of plain functions that keeps their signature."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate a function."""


def guarded(lock: Callable[[str], Lock], template: str) -> Guard:
    """Make the decorator.

    Args:
        lock: Describes the lock of a name.
        template: The name, with placeholders for arguments; see
            `aioredlock_ng.guarded.NameTemplate`.

    Raises:
        ConfigurationError: The template or an option is invalid for all arguments.
    """
    check_guard(lock, template)

    def decorate(function: Callable[P, R], /) -> Callable[P, R]:
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                f"guard({template!r}) of aioredlock_ng.sync is for functions defined by `def`;"
                " use aioredlock_ng.Redlock for coroutine functions"
            )
        if inspect.isgeneratorfunction(function):
            raise ConfigurationError(
                f"guard({template!r}) cannot hold a lock for the generator"
                f" {function.__qualname__}(), whose caller may never end it; use"
                " `with redlock.lock(...)` where its values are used"
            )
        names = NameTemplate(template, function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with lock(names.name(*args, **kwargs)):
                return function(*args, **kwargs)

        return call

    return decorate
