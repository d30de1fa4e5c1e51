"""Provide locks for FastAPI: a lifespan, and the manager and locks as dependencies.

The module needs the extra `fastapi`. Only an import of this module imports FastAPI.
"""

# FastAPI reads the annotations of this module, so `from __future__ import annotations` is not
# possible.
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

try:
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.exceptions import RequestValidationError
    from starlette.requests import HTTPConnection
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f'{__name__} needs fastapi: install aioredlock-ng with its extra "fastapi"',
        name=missing.name,
    ) from missing

from aioredlock_ng import ConfigurationError, Lease, LockLost, LockNotAcquired, Redlock

from ._endpoints import work_of, yields
from ._openapi import parameter_of, response_of
from ._parameters import Parameters
from ._policy import UNAVAILABLE, Policy, checked_manager
from ._routes import dependencies_of, served
from ._template import UnusableValue
from ._threads import outlasting

__all__ = [
    "LockDependency",
    "LockUnavailable",
    "check_locks",
    "get_redlock",
    "lock_for",
    "redlock_lifespan",
]

_CONNECTION: Final = "_connection"
_REDLOCK: Final = "_redlock"


class LockUnavailable(HTTPException):
    """The lock was held by another request (409 or 423), not available, or lost (503).

    FastAPI sends the answer, with a Retry-After header, by itself. An exception handler for this
    class may answer differently. `__cause__` is the library's error with the votes of the nodes.
    """


async def get_redlock(connection: HTTPConnection) -> Redlock:
    """Return the app's manager, as a dependency: `Annotated[Redlock, Depends(get_redlock)]`.

    Locks use the same dependency, so `app.dependency_overrides[get_redlock]` replaces the manager
    of endpoints and locks.

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


def redlock_lifespan(
    redlock: Redlock | None = None,
) -> Callable[[FastAPI], AbstractAsyncContextManager[dict[str, Redlock]]]:
    """Return a lifespan that opens a manager as `app.state.redlock` and closes it at the end.

    Use it as `FastAPI(lifespan=redlock_lifespan())`, or inside your own lifespan:
    `async with redlock_lifespan()(app): ...`. It yields a lifespan state, which mounted apps
    receive as well.

    Args:
        redlock: A manager that is not open yet. None: `Redlock.from_env()` at the start of the app.

    Returns:
        The lifespan. It raises `ConfigurationError` for invalid settings and locks (`check_locks`).

    Raises:
        ConfigurationError: `redlock` is no manager.
    """
    given = checked_manager("redlock_lifespan", redlock)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Redlock]]:
        manager = Redlock.from_env() if given is None else given
        check_locks(app, manager)
        async with manager:
            app.state.redlock = manager
            try:
                yield {"redlock": manager}
            finally:
                del app.state.redlock

    return lifespan


class LockDependency:
    """A dependency made by `lock_for`, which FastAPI calls for every request.

    Attributes:
        responses: Value for `responses=` of a route, so that its OpenAPI contains the answers
            although `check_locks` has not seen the route.
    """

    def __init__(self, policy: Policy, declared: dict[str, Any]) -> None:
        needed = {placeholder.name for placeholder in policy.placeholders}
        if unused := declared.keys() - needed:
            raise ConfigurationError(
                f"lock_for() got {', '.join(sorted(unused))}, which is neither an option nor"
                " a placeholder of the lock's name"
            )
        self._policy = policy
        self._undeclared = needed - declared.keys()
        self._parameters: WeakKeyDictionary[Callable[..., Any], Parameters] = WeakKeyDictionary()
        asked = {_CONNECTION: HTTPConnection, _REDLOCK: Depends(get_redlock), **declared}
        self.__signature__ = inspect.Signature(
            [parameter_of(name, value) for name, value in asked.items()]
        )
        self.responses: dict[int | str, dict[str, Any]] = {
            policy.held_status: response_of("Another request holds the lock"),
            UNAVAILABLE: response_of("The lock is not available, or was lost"),
        }

    def __repr__(self) -> str:
        return f"lock_for({', '.join(repr(template.text) for template in self._policy.templates)})"

    async def __call__(self, **values: Any) -> AsyncIterator[Lease]:
        """Hold the lock while the request is handled."""
        connection, redlock = values.pop(_CONNECTION), values.pop(_REDLOCK)
        if self._undeclared:
            values |= self._parameters_of(connection.scope["endpoint"]).read(
                self._undeclared, connection
            )
        try:
            lock = self._policy.lock(redlock.lock, values)
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
        except LockLost as error:
            if lease is None or not lease.was_gone:
                raise
            raise self._unavailable(error) from error

    def _unavailable(self, error: LockNotAcquired | LockLost) -> LockUnavailable:
        return LockUnavailable(*self._policy.answer(error))

    def _parameters_of(self, endpoint: Callable[..., Any]) -> Parameters:
        if (found := self._parameters.get(endpoint)) is None:
            found = self._parameters[endpoint] = Parameters(endpoint)
        return found

    def check(
        self, endpoint: Callable[..., Any], path: frozenset[str], redlock: Redlock | None
    ) -> None:
        """Check that a route with this endpoint and path has the values for the name.

        Internal: for `check_locks`.

        Raises:
            ConfigurationError: A value is missing, or the manager does not accept the options.
        """
        parameters = self._parameters_of(endpoint)
        for placeholder in self._policy.placeholders:
            if placeholder.name in self._undeclared:
                parameters.check(placeholder, path)
            else:
                parameters.agree(placeholder, self.__signature__.parameters[placeholder.name], path)
        if redlock is not None:
            self._policy.check(redlock.lock)


def lock_for(
    template: str,
    *more: str,
    ttl: float | None = None,
    blocking_timeout: float | None = 0.0,
    max_hold: float | None = None,
    min_hold: float | None = None,
    held_status: int = 423,
    retry_after: int = 1,
    fail_fast: bool = True,
    fair: bool = False,
    **declared: Any,
) -> LockDependency:
    """Return a dependency that holds a lock, named by the request's values.

    Its value is the `Lease`.

    Use it as `Annotated[Lease, Depends(lock_for("order:{order_id}"), scope="function")]`, or in
    `dependencies=[...]`. With `scope="function"` the lock is released when the endpoint returns,
    before the response is sent. Without this scope the lock is held until the response and its
    background tasks are done. The response may be a stream. An endpoint with `yield` runs while
    its stream is sent, so `check_locks` refuses `scope="function"` for such an endpoint.

    A loss of the lock cancels the endpoint, and the client receives 503. After the start of a
    response no answer is possible: the connection is closed early, and the server logs the error. A
    `def` endpoint runs in a thread, which nothing can cancel. The client receives 503 at once while
    the thread goes on. The endpoint should call `lease.check()` before any step that must not
    happen twice.

    Args:
        template: The lock's name. `{order_id}` is a parameter of the endpoint from the path or the
            query. Its value in the endpoint is a str, int, UUID, date or Enum.
        more: Names of further locks, which are acquired together: all or nothing.
        ttl: Seconds until the lock expires without renewal. None: the manager's ttl.
        blocking_timeout: Seconds to wait while another request holds the lock. None: for ever. 0:
            no wait. Simultaneous requests may then all be refused. A short wait prevents that.
        max_hold: Seconds after which the lock is lost although it could be renewed. None: never.
        min_hold: Seconds for which the lock stays taken at least (`Redlock.lock`).
        held_status: Status if another request holds the lock: 409 or 423.
        retry_after: Whole seconds for the Retry-After header of 409, 423 and 503. For 503 the value
            is larger if quarantined nodes need longer, up to an hour.
        fail_fast: Answer 503 after one attempt, without waiting for `blocking_timeout`, while no
            quorum of nodes can grant.
        fair: Serve the waiting requests of all processes strictly in the order of their arrival.
            This is slower, and has no effect with `blocking_timeout=0`.
        declared: Sources of other values, declared like the parameters of a dependency:
            `order=Order` for the body's model that the endpoint calls `order`,
            `user=Depends(current_user)`, `tenant=Annotated[str, Header()]`.

    Raises:
        ConfigurationError: An argument is invalid. `check_locks` finds errors that depend on the
            route at the start of the app.

    Safety: as `async with redlock.lock(...)`. The lock is released however the request ends. If a
    cancelled request's `def` endpoint still works in its thread, the lock is held and renewed until
    the thread has ended. If the request waited for another thread, the lock is left to expire.
    """
    options = {
        "ttl": ttl,
        "blocking_timeout": blocking_timeout,
        "max_hold": max_hold,
        "min_hold": min_hold,
        "fail_fast": fail_fast,
        "fair": fair,
    }
    return LockDependency(Policy((template, *more), options, held_status, retry_after), declared)


def check_locks(app: FastAPI, redlock: Redlock | None = None) -> None:
    """Check the locks of all routes, and add their answers to the app's OpenAPI. Idempotent.

    `redlock_lifespan` calls this function at the start. Call it yourself after the last route if
    you make the OpenAPI document without starting the app.

    Args:
        app: The app. Included routers and mounted apps count as well.
        redlock: The manager whose limits the options must keep. None: limits are not checked.

    Raises:
        ConfigurationError: A lock names a value that its route does not have, or an option is
            invalid. The message names the error and the route.
    """
    for place, route, variables, websocket in served(app):
        for dependency in dependencies_of(route.dependant):
            if not isinstance(lock := dependency.call, LockDependency):
                continue
            try:
                if websocket:
                    raise ConfigurationError(
                        "a WebSocket cannot receive this answer; use `async with"
                        " redlock.lock(...)` in the endpoint"
                    )
                if dependency.scope == "function" and yields(route.endpoint):
                    raise ConfigurationError(
                        "the body of an endpoint with `yield` runs while the response is sent, but"
                        ' scope="function" releases the lock before that; leave the scope out'
                    )
                lock.check(route.endpoint, variables, redlock)
            except ConfigurationError as error:
                raise ConfigurationError(f"{route.path}: {lock!r}: {error}") from None
            if lock.responses.keys() - route.responses.keys():
                route.responses.update({**lock.responses, **route.responses})
                place.openapi_schema = None  # an earlier document lacks them
