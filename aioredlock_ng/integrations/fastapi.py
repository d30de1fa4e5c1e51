"""Locks for FastAPI: a lifespan, the manager and locks as dependencies; it never decides when a lock is granted or lost.

Needs the extra `fastapi`. Nothing is imported or opened before a module of yours imports this one.
"""

# Annotations are read by FastAPI: no `from __future__ import annotations` here.
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

try:
    from fastapi import Depends, FastAPI, HTTPException, params
    from fastapi.exceptions import RequestValidationError
    from starlette.requests import HTTPConnection
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f'{__name__} needs fastapi: install aioredlock-ng with its extra "fastapi"',
        name=missing.name,
    ) from missing

from aioredlock_ng import ConfigurationError, Lease, LockLost, LockNotAcquired, Redlock

from ._parameters import Parameters
from ._policy import UNAVAILABLE, Policy, checked_manager
from ._routes import dependencies_of, served
from ._template import UnusableValue
from ._threads import Work, outlasting, watched

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
_WORK: Final = "aioredlock_ng.work"


class LockUnavailable(HTTPException):
    """The lock was held by another (409 or 423), could not be asked for, or was lost (503); with a Retry-After header.

    FastAPI answers it by itself. An exception handler for this class answers it otherwise; `__cause__` is the library's
    error, with the votes of the nodes.
    """


async def get_redlock(connection: HTTPConnection) -> Redlock:
    """The app's manager, as a dependency: `Annotated[Redlock, Depends(get_redlock)]`.

    Locks ask for it the same way, so `app.dependency_overrides[get_redlock]` gives both another one.

    Raises:
        ConfigurationError: The app has none.
    """
    for state in (connection.app.state, connection.state):
        if (found := getattr(state, "redlock", None)) is not None:
            return found  # type: ignore[no-any-return]
    raise ConfigurationError(
        "this app has no Redlock: write FastAPI(lifespan=redlock_lifespan()), and let the lifespan run (a TestClient runs it"
        " in `with TestClient(app)` only), or override the dependency get_redlock"
    )


def redlock_lifespan(
    redlock: Redlock | None = None,
) -> Callable[[FastAPI], AbstractAsyncContextManager[dict[str, Redlock]]]:
    """A lifespan that opens a manager, keeps it in `app.state.redlock`, and closes it at the end.

    It is `FastAPI(lifespan=redlock_lifespan())`, or a part of your own lifespan: `async with redlock_lifespan()(app): ...`.
    What it yields is a lifespan state, which apps mounted in this one see too.

    Args:
        redlock: A manager that is not open yet; None: `Redlock.from_env()`, when the app starts.

    Returns:
        The lifespan. Entering it raises `ConfigurationError` for settings and locks that are unusable, see `check_locks`.

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
    """Made by `lock_for`: FastAPI calls it for every request.

    Attributes:
        responses: What `responses=` of a route takes, to have the answers in OpenAPI where `check_locks` did not see it.
    """

    def __init__(self, policy: Policy, declared: dict[str, Any]) -> None:
        needed = {placeholder.name for placeholder in policy.placeholders}
        if unused := declared.keys() - needed:
            raise ConfigurationError(
                f"lock_for() got {', '.join(sorted(unused))}, which is no option of it and no placeholder of the lock's name"
            )
        self._policy = policy
        self._undeclared = needed - declared.keys()
        self._parameters: WeakKeyDictionary[Callable[..., Any], Parameters] = WeakKeyDictionary()
        asked = {_CONNECTION: HTTPConnection, _REDLOCK: Depends(get_redlock), **declared}
        self.__signature__ = inspect.Signature(
            [_parameter(name, value) for name, value in asked.items()]
        )
        self.responses: dict[int | str, dict[str, Any]] = {
            policy.held_status: _response("Another request holds the lock"),
            UNAVAILABLE: _response("The lock cannot be had, or was lost"),
        }

    def __repr__(self) -> str:
        return f"lock_for({', '.join(repr(template.text) for template in self._policy.templates)})"

    async def __call__(self, **values: Any) -> AsyncIterator[Lease]:
        """Hold the lock while the request is handled; see `lock_for`."""
        connection, redlock = values.pop(_CONNECTION), values.pop(_REDLOCK)
        if self._undeclared:
            values |= self._parameters_of(connection.scope["endpoint"]).read(
                self._undeclared, connection
            )
        try:
            lock = self._policy.lock(redlock, values)
        except UnusableValue as error:
            raise RequestValidationError(
                [{"type": "lock_name", "loc": ("lock",), "msg": str(error), "input": None}]
            ) from error
        work = _work_of(connection)
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
        """For `check_locks`: make sure that a route with this endpoint and path has what the name needs.

        Raises:
            ConfigurationError: It has not, or the manager does not accept the options.
        """
        parameters = self._parameters_of(endpoint)
        for placeholder in self._policy.placeholders:
            if placeholder.name in self._undeclared:
                parameters.check(placeholder, path)
            else:
                parameters.agree(placeholder, self.__signature__.parameters[placeholder.name], path)
        if redlock is not None:
            self._policy.check(redlock)


def lock_for(
    template: str,
    *more: str,
    ttl: float | None = None,
    blocking_timeout: float | None = 0.0,
    max_hold: float | None = None,
    held_status: int = 423,
    retry_after: int = 1,
    fail_fast: bool = True,
    fair: bool = False,
    **declared: Any,
) -> LockDependency:
    """A dependency that holds a lock named by the request's values, and is the `Lease`.

    `Annotated[Lease, Depends(lock_for("order:{order_id}"), scope="function")]`, or in `dependencies=[...]`. With
    `scope="function"` it is held until the endpoint has returned, and free before the response is sent; without, it is
    held until the response, be it a stream, and its background tasks are done. An endpoint that yields is such a stream:
    its body runs while the response is sent, and `check_locks` refuses `scope="function"` for it.

    A lock that is lost cancels the endpoint, which is answered by 503. Once a response has begun nothing can be answered:
    the connection is closed before its end, and the server logs the error. A `def` endpoint runs in a thread, which nothing
    can cancel: 503 is answered at once while it goes on; it asks `lease.check()` before what must not happen twice.

    Args:
        template: The lock's name. `{order_id}` is a parameter of the endpoint, from the path or the query, as the endpoint
            gets it: of type str, int, UUID, date or Enum, so that one value is one name.
        more: Names of further locks, taken together: all or nothing.
        ttl: Seconds that it lives without renewal; None: the manager's.
        blocking_timeout: Seconds to wait while another holds it; None: for ever; 0: no waiting. Requests of the
            same instant in several processes may then split the votes twice, and all be refused; a short wait prevents that.
        max_hold: Seconds after which the lock counts as lost though it could be renewed; None: never.
        held_status: 409 or 423, when another holds it.
        retry_after: Whole seconds for the Retry-After header of 409, 423 and 503; 503 says more where
            quarantined nodes are in the way for longer, an hour at most.
        fail_fast: While it is known that no quorum of nodes can grant, answer 503 after one attempt
            instead of waiting for `blocking_timeout`.
        fair: Serve the waiting requests of all processes one by one in the order in which they came. It
            is slower, and changes nothing with `blocking_timeout=0`.
        declared: Where other values come from, as a dependency's parameters say it: `order=Order` for the body's model
            that the endpoint calls `order`, `user=Depends(current_user)`, `tenant=Annotated[str, Header()]`.

    Raises:
        ConfigurationError: An argument is unusable. What depends on the route is found by `check_locks`, when the app starts.

    Safety: as `async with redlock.lock(...)`: however the request ends, the lock is released. A
        cancelled request whose `def` endpoint works on in its thread holds the lock, renewed, until
        the thread has ended. Any other thread that it waited for leaves the lock to expire.
    """
    options = {
        "ttl": ttl,
        "blocking_timeout": blocking_timeout,
        "max_hold": max_hold,
        "fail_fast": fail_fast,
        "fair": fair,
    }
    return LockDependency(Policy((template, *more), options, held_status, retry_after), declared)


def check_locks(app: FastAPI, redlock: Redlock | None = None) -> None:
    """Check the locks of all routes, and put their answers into the app's OpenAPI; `redlock_lifespan` does it at start.

    Call it when all routes are there, if you make the OpenAPI document without starting the app. Idempotent.

    Args:
        app: Routers that it includes and apps that are mounted in it count too.
        redlock: Whose limits the locks' options must keep; None: not checked.

    Raises:
        ConfigurationError: A lock names what its route does not have, or an option is unusable; says which, where, and why.
    """
    for place, route, variables, websocket in served(app):
        for dependency in dependencies_of(route.dependant):
            if not isinstance(lock := dependency.call, LockDependency):
                continue
            try:
                if websocket:
                    raise ConfigurationError(
                        "a WebSocket cannot be answered; use `async with redlock.lock(...)` in the endpoint"
                    )
                if dependency.scope == "function" and _yields(route.endpoint):
                    raise ConfigurationError(
                        "an endpoint that yields runs while its response is sent, before which"
                        ' scope="function" gives the lock back: leave the scope out'
                    )
                lock.check(route.endpoint, variables, redlock)
            except ConfigurationError as error:
                raise ConfigurationError(f"{route.path}: {lock!r}: {error}") from None
            if lock.responses.keys() - route.responses.keys():
                route.responses.update({**lock.responses, **route.responses})
                place.openapi_schema = None  # made before, it lacks them


def _work_of(connection: HTTPConnection) -> Work:
    """The request's work, which its endpoint tells when it begins and ends in a thread."""
    scope = connection.scope
    # An included router's route has its parameters, and so its endpoint, once for each place.
    route = scope.get("fastapi", {}).get("effective_route_context") or scope.get("route")
    dependant = getattr(route, "dependant", None)
    if dependant is not None and not (_is_async(dependant.call) or _yields(dependant.call)):
        # FastAPI calls what stands here, and knows already whether in a thread.
        dependant.call = watched(dependant.call)
    work: Work | None = scope.get(_WORK)
    if work is None or work.over:
        # A middleware that handles a request once more gives the same scope, whose work has ended.
        work = scope[_WORK] = Work()
    work.enter()
    return work


def _is_async(endpoint: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(endpoint))


def _yields(endpoint: Callable[..., Any]) -> bool:
    plain = inspect.unwrap(endpoint)
    return inspect.isasyncgenfunction(plain) or inspect.isgeneratorfunction(plain)


def _parameter(name: str, declared: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    if isinstance(declared, params.Depends):
        return inspect.Parameter(name, kind, default=declared)
    return inspect.Parameter(name, kind, annotation=declared)


def _response(description: str) -> dict[str, Any]:
    detail = {
        "type": "object",
        "properties": {"detail": {"type": "string"}},
        "required": ["detail"],
    }
    return {
        "description": description,
        "headers": {
            "Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}
        },
        "content": {"application/json": {"schema": detail}},
    }
