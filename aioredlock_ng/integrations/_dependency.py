"""Hold the lock of a FastAPI dependency while a request is handled."""

# FastAPI reads the annotations of this module, so `from __future__ import annotations` is not
# possible.
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from fastapi import Depends, HTTPException
from fastapi.exceptions import RequestValidationError
from starlette.requests import HTTPConnection

from aioredlock_ng import ConfigurationError, Lease, LockLost, LockNotAcquired, Redlock
from aioredlock_ng._notes import is_loss

from ._endpoints import work_of
from ._openapi import parameter_of, response_of
from ._parameters import Parameters
from ._policy import UNAVAILABLE, Policy
from ._template import UnusableValue
from ._threads import outlasting

__all__ = ["LockDependency", "LockUnavailable", "get_redlock"]

_CONNECTION: Final = "_connection"
_REQUEST: Final = "request"
_REDLOCK: Final = "_redlock"


class LockUnavailable(HTTPException):
    """The HTTP error for a request that did not get its lock, or lost it.

    The status is 409, 423 or 429 if other requests held the lock or all slots. The status is 503 if
    no quorum of nodes could grant the lock, or if the lock was lost. FastAPI sends the answer with
    a Retry-After header, unless the app has an exception handler for this class.
    `__cause__` is the library's error with the votes of the nodes.
    """


async def get_redlock(connection: HTTPConnection) -> Redlock:
    """Return the app's manager. Declare it as `Annotated[Redlock, Depends(get_redlock)]`.

    Locks get their manager from this dependency as well. So an override in
    `app.dependency_overrides[get_redlock]` applies to endpoints and to locks.

    Raises:
        ConfigurationError: The app has no manager.
    """
    for state in (connection.app.state, connection.state):
        if (found := getattr(state, "redlock", None)) is not None:
            return found  # type: ignore[no-any-return]
    raise ConfigurationError(
        "this app has no Redlock: write FastAPI(lifespan=redlock_lifespan()), and let the"
        " lifespan run (a TestClient runs it only in `with TestClient(app)`), or override the"
        " dependency get_redlock"
    )


class LockDependency:
    """A dependency made by `lock_for` or `semaphore_for`. FastAPI calls it for every request.

    Attributes:
        responses: The lock's error answers for OpenAPI. `check_locks` adds these answers to the
            routes of its app. For any other route, pass this value to the route's decorator as
            `responses`.
    """

    def __init__(self, policy: Policy, declared: dict[str, Any]) -> None:
        self._called = "lock_for" if policy.limit is None else "semaphore_for"
        self._labelled = policy.labelled({_REQUEST})
        needed = {placeholder.name for placeholder in (*policy.placeholders, *self._labelled)}
        if unused := declared.keys() - needed:
            raise ConfigurationError(
                f"{self._called}() got {', '.join(sorted(unused))}, which is neither an option"
                " nor a placeholder of the lock's name or owner"
            )
        self._policy = policy
        self._undeclared = needed - declared.keys()
        self._parameters: WeakKeyDictionary[Callable[..., Any], Parameters] = WeakKeyDictionary()
        asked = {_CONNECTION: HTTPConnection, _REDLOCK: Depends(get_redlock), **declared}
        self.__signature__ = inspect.Signature(
            [parameter_of(name, value) for name, value in asked.items()]
        )
        self.responses: dict[int | str, dict[str, Any]] = {
            policy.held_status: response_of(policy.held_when),
            UNAVAILABLE: response_of("The lock is not available, or was lost"),
        }

    def __repr__(self) -> str:
        named = ", ".join(repr(template.text) for template in self._policy.templates)
        limit = "" if self._policy.limit is None else f", {self._policy.limit}"
        shared = ", shared=True" if self._policy.shared else ""
        return f"{self._called}({named}{limit}{shared})"

    async def __call__(self, **values: Any) -> AsyncIterator[Lease]:
        """Hold the lock while the request is handled, and yield its lease."""
        connection, redlock = values.pop(_CONNECTION), values.pop(_REDLOCK)
        if self._undeclared:
            values |= self._parameters_of(connection.scope["endpoint"]).read(
                self._undeclared, connection
            )
        try:
            lock = self._policy.lock(redlock, values, {_REQUEST: connection})
        except UnusableValue as error:
            raise RequestValidationError(
                [{"type": "lock_name", "loc": ("lock",), "msg": str(error), "input": None}]
            ) from error
        work = work_of(connection)
        lease = None
        try:
            async with lock as lease:
                lease.used_by(work.still_used)
                try:
                    with outlasting(lease, work):
                        yield lease
                finally:
                    work.leave()
        except LockNotAcquired as error:
            if lease is not None:
                raise
            raise self._unavailable(error) from error
        except (LockLost, ExceptionGroup) as error:
            if lease is None or not lease.was_gone or not is_loss(error):
                raise
            raise self._unavailable(lease.lost_error()) from error

    def _unavailable(self, error: LockNotAcquired | LockLost) -> LockUnavailable:
        return LockUnavailable(*self._policy.answer(error))

    def _parameters_of(self, endpoint: Callable[..., Any]) -> Parameters:
        if (found := self._parameters.get(endpoint)) is None:
            found = self._parameters[endpoint] = Parameters(endpoint, self._called)
        return found

    def check(
        self, endpoint: Callable[..., Any], path: frozenset[str], redlock: Redlock | None
    ) -> None:
        """Check that a route has the values that the lock's name and label need.

        `endpoint` is the route's function, and `path` has the variables of the route's path.

        Internal: for `check_locks`.

        Raises:
            ConfigurationError: The route lacks a value, or the route and the lock declare it
                differently, or the manager does not accept the options.
        """
        parameters = self._parameters_of(endpoint)
        named = self._policy.placeholders
        for placeholder in (*named, *self._labelled):
            if placeholder.name in self._undeclared:
                parameters.check(placeholder, path)
            else:
                declared = self.__signature__.parameters[placeholder.name]
                parameters.agree(placeholder, declared, path, textual=placeholder in named)
        if redlock is not None:
            self._policy.check(redlock)
