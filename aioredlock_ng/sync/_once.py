"""Define the decorator behind `Redlock.once`, for plain functions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, Protocol

from aioredlock_ng._manager.once import DECORATOR, answering_bool
from aioredlock_ng.errors import AcquireTimeout
from aioredlock_ng.guarded import check_guard
from aioredlock_ng.sync.guarded import names_of_calls, refuse_unrun

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.sync._lock import Lock

__all__ = ["Once", "once"]

P = ParamSpec("P")


class Once(Protocol):
    """A decorator of plain functions. A call returns True if it ran the function."""

    def __call__(self, function: Callable[P, object], /) -> Callable[P, bool]: ...


def once(lock: Callable[[str], Lock], template: str) -> Once:
    """Return the decorator of `Redlock.once`.

    Args:
        lock: Takes a name, and returns the lock of that name, with a `min_hold`.
        template: The name, with placeholders for arguments.

    Raises:
        ConfigurationError: The template is not a str, or an option of the lock is invalid.
    """
    check_guard(lock, template, DECORATOR)

    def decorate(function: Callable[P, object], /) -> Callable[P, bool]:
        names = names_of_calls(template, function, "once")

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> bool:
            held, lease = lock(names.name(*args, **kwargs)), None
            try:
                with held as lease:
                    refuse_unrun(function(*args, **kwargs), function)
            except AcquireTimeout:
                # If there is a lease, the error comes from a lock that the function acquires.
                if lease is not None:
                    raise
                return False
            except BaseException:
                # As in `guarded`, a signal handler may end the `with` before its `__exit__` begins.
                if lease is not None:
                    held.leave(lease)
                raise
            return True

        call.__signature__ = answering_bool(function)  # type: ignore[attr-defined]
        return call

    return decorate
