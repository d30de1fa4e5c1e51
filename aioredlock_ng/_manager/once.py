"""Define the decorator behind `Redlock.once`, by which only one of many processes does the work.

The lock of a call has a `min_hold`. So the lock stays taken for this time, even if the work ends
earlier.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol

from aioredlock_ng.errors import AcquireTimeout
from aioredlock_ng.guarded import check_guard, names_of_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioredlock_ng.lock import Lock

__all__ = ["DECORATOR", "Once", "answering_bool", "once", "wait_of"]

P = ParamSpec("P")

DECORATOR: Final = "@redlock.once("
"""First words of the example of correct code in error messages."""

_LONGEST_WAIT: Final = 1.0
"""Longest wait of a call in seconds.

Without a wait, calls at the same moment could split the votes, and no call would run the function.
With a wait, the queue on the nodes decides within a few round trips.
"""

_WAIT_SHARE: Final = 0.1
"""Longest wait of a call as a share of `within`.

`within` seconds after a call has begun, the lock is free again. Another call that waited until then
would run the function a second time.
"""


class Once(Protocol):
    """A decorator of coroutine functions. A call returns True if it ran the function."""

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, object]], /
    ) -> Callable[P, Coroutine[Any, Any, bool]]: ...


def wait_of(within: float) -> float:
    """Return the longest time in seconds that a call waits for its lock."""
    return min(_LONGEST_WAIT, within * _WAIT_SHARE)


def answering_bool(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature of the decorated function, whose calls return a bool."""
    return inspect.signature(function).replace(return_annotation=bool)


def once(lock: Callable[[str], Lock], template: str) -> Once:
    """Return the decorator of `Redlock.once`.

    Args:
        lock: Returns a lock with a `min_hold` for a name.
        template: The template of the name; see `NameTemplate`.

    Raises:
        ConfigurationError: The template is not a str, or an option of the lock is invalid.
    """
    check_guard(lock, template, DECORATOR)

    def decorate(
        function: Callable[P, Coroutine[Any, Any, object]], /
    ) -> Callable[P, Coroutine[Any, Any, bool]]:
        names = names_of_calls(template, function, "once")

        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> bool:
            began = False
            try:
                async with lock(names.name(*args, **kwargs)):
                    began = True
                    await function(*args, **kwargs)
            except AcquireTimeout:
                # If the function has begun, the error comes from another lock, which the function
                # itself tried to acquire. So the error is not about the lock of this call.
                if began:
                    raise
                return False
            return True

        call.__signature__ = answering_bool(function)  # type: ignore[attr-defined]
        return call

    return decorate
