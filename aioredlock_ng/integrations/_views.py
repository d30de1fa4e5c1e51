"""Hold a lock while a view function runs in a thread."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from aioredlock_ng import ConfigurationError, LockLost, LockNotAcquired
from aioredlock_ng._notes import is_loss

from ._policy import Answer, Policy
from ._template import UnusableValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioredlock_ng.sync import Redlock

__all__ = ["Refused", "ViewLock", "ViewOptions", "policy_of"]

R = TypeVar("R")

_BAD_REQUEST: Final = 400

_DEFAULTS: Final[ViewOptions] = {
    "limit": None,
    "shared": False,
    "ttl": None,
    "blocking_timeout": 0.0,
    "max_hold": None,
    "min_hold": None,
    "held_status": None,
    "retry_after": 1,
    "owner": None,
    "fail_fast": True,
    "fair": False,
}


class ViewOptions(TypedDict, total=False):
    """The options of `locked` for views.

    Attributes:
        limit: Number of requests, 1 to 1,000, that may run at a time under one name. The view then
            uses a semaphore in place of a lock. A semaphore has only one name. Default: a lock.
        shared: If True, the lock is `rwlock(name).read()`. Requests with the same lock name may
            then run at the same time. A lock of the same name without `shared` is a writer. With
            `shared`, several names, `limit`, `min_hold` and `fair` are not possible. Default:
            False.
        ttl: Seconds until the lock expires without renewal. Default: the manager's ttl.
        blocking_timeout: Seconds to wait while another request holds the lock. None: for ever.
            Default: 0, no wait. Without a wait, simultaneous requests in several processes may all
            be refused, because no request gets a majority. A short wait prevents this.
        max_hold: Seconds after which the lock is lost, even if a renewal is possible. Default:
            never.
        min_hold: Shortest time in seconds for which the lock or the slot stays taken; see
            `Redlock.lock`. Default: none.
        held_status: Status if another request holds the lock: 423 (default) or 409. With `limit`,
            the status if other requests hold all slots: 429 (default), 409 or 423.
        retry_after: Whole seconds for the Retry-After header of 409, 423, 429 and 503. Default: 1.
            The header has a larger value, up to an hour, if a longer wait is likely. That is so
            while nodes are quarantined (status 503), and while `min_hold` keeps the lock or the
            slot (all other statuses).
        owner: Label of the holder, which `inspect` shows. A text may have placeholders, as in
            "order {order_id}". A function returns the label, or None for the manager's label. The
            function's parameters name the values that it receives. A label is one printable line of
            at most 200 bytes. If the text is anything else, the client receives 400. Default: the
            manager's label.
        fail_fast: If no quorum of nodes can grant, answer 503 after one attempt instead of waiting
            for `blocking_timeout`. Default: True.
        fair: Serve the waiting requests of all processes strictly in the order of their arrival.
            The option makes requests slower, and has no effect on a request that does not wait.
            Default: False.
    """

    limit: int | None
    shared: bool
    ttl: float | None
    blocking_timeout: float | None
    max_hold: float | None
    min_hold: float | None
    held_status: int | None
    retry_after: int
    owner: str | Callable[..., str | None] | None
    fail_fast: bool
    fair: bool


class Refused(Exception):
    """The view was not called, or has lost its lock. `__cause__` is the original error.

    Attributes:
        answer: The answer to the client.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.detail)
        self.answer = answer


def policy_of(templates: tuple[str, ...], options: Mapping[str, Any]) -> Policy:
    """Return the policy for the arguments of `locked`.

    Raises:
        ConfigurationError: An argument is invalid.
    """
    if unknown := options.keys() - ViewOptions.__annotations__.keys():
        raise ConfigurationError(
            f"locked() got {', '.join(sorted(unknown))}, which is not an option; there are:"
            f" {', '.join(ViewOptions.__annotations__)}"
        )
    return Policy.of(templates, {**_DEFAULTS, **options})


class ViewLock:
    """The lock of one view.

    Args:
        view: The view function. Its arguments are values for the lock's name and label.
        policy: The names, options and answers of the lock.
        more: Names of further values that the framework provides, such as `request`.
        is_async: True if the framework awaits the view.

    Raises:
        ConfigurationError: A placeholder is neither a parameter of the view nor in `more`, or the
            view is a generator or a coroutine function.
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
                f"{called} yields its response after the release of the lock; use `with"
                " redlock.lock(...)` inside of it"
            )
        self._policy = policy
        # Django's method_decorator passes a partial. Its `__wrapped__` must not be followed: the
        # wrapped function has an additional parameter, `self`.
        follow = not isinstance(view, functools.partial)
        self._signature = inspect.signature(view, follow_wrapped=follow)
        self._called = called
        self._needed = {
            placeholder.name for placeholder in (*policy.placeholders, *policy.labelled())
        }
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
        """Run `call` under the view's lock, and return its result.

        `call` is a function that calls the view. A placeholder in the lock's name or label gets its
        value from an argument of the view, as given in `args` and `kwargs`. If the view has no such
        argument, the value comes from `more`.

        Raises:
            Refused: The request's values cannot form a name or a label, or the lock was not
                acquired or was lost.
            ConfigurationError: The view has no value for a placeholder. Or the type of a value is
                not allowed, because two equal values of the type could give different names.
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
        except (LockLost, ExceptionGroup) as error:
            if lease is None or not lease.was_gone or not is_loss(error):
                raise
            raise Refused(self._policy.answer(lease.lost_error())) from error

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
