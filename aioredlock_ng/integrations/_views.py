"""Hold locks around view functions that run in threads, named by their arguments."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from aioredlock_ng import ConfigurationError, LockLost, LockNotAcquired

from ._policy import Answer, Policy
from ._template import UnusableValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioredlock_ng.sync import Redlock

__all__ = ["Refused", "ViewLock", "ViewOptions", "policy_of"]

R = TypeVar("R")

_BAD_REQUEST: Final = 400

_DEFAULTS: Final[dict[str, Any]] = {
    "ttl": None,
    "blocking_timeout": 0.0,
    "max_hold": None,
    "fail_fast": True,
    "fair": False,
}


class ViewOptions(TypedDict, total=False):
    """The options of `locked` for views.

    Attributes:
        ttl: Seconds until the lock expires without renewal. Default: the manager's ttl.
        blocking_timeout: Seconds to wait while another request holds the lock. None: for ever.
            Default: 0, no wait. Simultaneous requests in several processes may then all be refused,
            because none of them gets a majority. A short wait prevents that.
        max_hold: Seconds after which the lock is lost although it could be renewed. Default: never.
        held_status: Status if another request holds the lock: 423 (default) or 409.
        retry_after: Whole seconds for the Retry-After header of 409, 423 and 503. Default: 1. For
            503 the value is larger if quarantined nodes need longer, up to an hour.
        fail_fast: Answer 503 after one attempt, without waiting for `blocking_timeout`, while no
            quorum of nodes can grant. Default: True.
        fair: Serve the waiting requests of all processes strictly in the order of their arrival.
            This is slower, and has no effect without a wait. Default: False.
    """

    ttl: float | None
    blocking_timeout: float | None
    max_hold: float | None
    held_status: int
    retry_after: int
    fail_fast: bool
    fair: bool


class Refused(Exception):
    """The view has not run, or has lost its lock. `__cause__` is the error of the lock.

    Attributes:
        answer: The answer to the client.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.detail)
        self.answer = answer


def policy_of(templates: tuple[str, ...], options: Mapping[str, Any]) -> Policy:
    """Return the rules of one `locked`.

    Raises:
        ConfigurationError: An argument is invalid.
    """
    if unknown := options.keys() - ViewOptions.__annotations__.keys():
        raise ConfigurationError(
            f"locked() got {', '.join(sorted(unknown))}, which is no option; there are:"
            f" {', '.join(ViewOptions.__annotations__)}"
        )
    of_lock = {name: options.get(name, default) for name, default in _DEFAULTS.items()}
    return Policy(
        templates, of_lock, options.get("held_status", 423), options.get("retry_after", 1)
    )


class ViewLock:
    """The lock of one view.

    Args:
        view: The view function. The placeholders are its parameters.
        policy: Names, options and answers.
        more: Names of further values, which the framework offers beside the arguments.
        is_async: True if the framework awaits the view.

    Raises:
        ConfigurationError: A placeholder is no parameter, or the view is a generator or a coroutine
            function.
    """

    def __init__(
        self,
        view: Callable[..., Any],
        policy: Policy,
        more: frozenset[str] = frozenset(),
        *,
        is_async: bool = False,
    ) -> None:
        called = f"{getattr(view, '__qualname__', repr(view))}()"
        if is_async or inspect.iscoroutinefunction(view) or inspect.isasyncgenfunction(view):
            raise ConfigurationError(
                f"locked() is for views defined by `def`, and {called} is a coroutine function;"
                " use `async with` and aioredlock_ng.Redlock in it"
            )
        if inspect.isgeneratorfunction(view):
            raise ConfigurationError(
                f"{called} yields its response after the lock would be released; use `with"
                " redlock.lock(...)` inside of it"
            )
        self._policy = policy
        # The partial of Django's method_decorator names a function as its origin, which has the
        # parameter `self` besides.
        follow = not isinstance(view, functools.partial)
        self._signature = inspect.signature(view, follow_wrapped=follow)
        self._called = called
        self._needed = {placeholder.name for placeholder in policy.placeholders}
        kinds = {name: found.kind for name, found in self._signature.parameters.items()}
        self._rest = [name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD]
        known = kinds.keys() | more
        if not self._rest and (unknown := self._needed - known):
            raise self._missing(unknown, known)

    def hold(
        self,
        redlock: Redlock,
        call: Callable[[], R],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        more: Mapping[str, Any],
    ) -> R:
        """Call the view under its lock and return its result.

        Args:
            redlock: The manager.
            call: Calls the view.
            args: Positional arguments of the view.
            kwargs: Named arguments of the view.
            more: Further values for the name.

        Raises:
            Refused: The request's values form no name, the lock was not acquired, or it was lost.
            ConfigurationError: The view has no value for a placeholder, or the value has no unique
                text.
        """
        try:
            lock = self._policy.lock(redlock, self._values(args, kwargs, more))
        except UnusableValue as error:
            raise Refused(Answer(_BAD_REQUEST, str(error), {})) from error
        lease = None
        try:
            with lock as lease:
                return call()
        except LockNotAcquired as error:
            if lease is not None:
                raise
            raise Refused(self._policy.answer(error)) from error
        except LockLost as error:
            if lease is None or not lease.was_gone:
                raise
            raise Refused(self._policy.answer(error)) from error

    def _values(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], more: Mapping[str, Any]
    ) -> dict[str, Any]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = {**more, **bound.arguments}
        for name in self._rest:
            values |= values.pop(name)
        if missing := self._needed - values.keys():
            raise self._missing(missing, values.keys())
        return values

    def _missing(self, names: set[str], known: Any) -> ConfigurationError:
        return ConfigurationError(
            f"the lock of {self._called} needs {', '.join(sorted(names))}; there are:"
            f" {', '.join(sorted(known)) or 'none'}"
        )
