"""Provide locks for FastAPI: a lifespan, and the manager and locks as dependencies.

The module needs the extra `fastapi`. Only an import of this module imports FastAPI.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

try:
    from fastapi import FastAPI
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f'{__name__} needs fastapi: install aioredlock-ng with its extra "fastapi"',
        name=missing.name,
    ) from missing

from aioredlock_ng import ConfigurationError, Redlock

from ._dependency import LockDependency, LockUnavailable, get_redlock
from ._endpoints import yields
from ._policy import Policy, checked_manager
from ._routes import dependencies_of, served

__all__ = [
    "LockDependency",
    "LockUnavailable",
    "check_locks",
    "get_redlock",
    "lock_for",
    "redlock_lifespan",
    "semaphore_for",
]


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
            query, with the value that the endpoint gets. Its type is str, int, UUID, date or Enum,
            so that a value has one name.
        more: Names of further locks, which are acquired together: all or nothing.
        ttl: Seconds until the lock expires without renewal. None: the manager's ttl.
        blocking_timeout: Seconds to wait while another request holds the lock. None: for ever. 0:
            no wait. Simultaneous requests in several processes may then all be refused, because
            none of them gets a majority. A short wait prevents that.
        max_hold: Seconds after which the lock is lost although it could be renewed. None: never.
        min_hold: Seconds for which the lock stays taken at least (`Redlock.lock`).
        held_status: Status if another request holds the lock: 409 or 423.
        retry_after: Whole seconds for the Retry-After header of 409, 423 and 503. The value is
            larger if it is known that the lock stays taken for longer: for 503 while nodes are
            quarantined, up to an hour, and otherwise by `min_hold`.
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


def semaphore_for(
    template: str,
    limit: int,
    *,
    ttl: float | None = None,
    blocking_timeout: float | None = 0.0,
    max_hold: float | None = None,
    min_hold: float | None = None,
    held_status: int = 429,
    retry_after: int = 1,
    fail_fast: bool = True,
    fair: bool = False,
    **declared: Any,
) -> LockDependency:
    """Return a dependency that holds a slot of a semaphore, named by the request's values.

    At most `limit` requests of one name are inside at the same time, in all processes. The
    dependency is used like that of `lock_for`. Its value is the `Lease`, and `lease.slot` is the
    number of the slot.

    Args:
        template: The semaphore's name, as in `lock_for`.
        limit: The number of slots, 1 to 1,000.
        ttl: As in `lock_for`.
        blocking_timeout: Seconds to wait while other requests hold all slots. None: for ever. 0:
            no wait.
        max_hold: As in `lock_for`.
        min_hold: Seconds for which the slot stays taken at least. So at most `limit` requests
            begin within that time.
        held_status: Status if other requests hold all slots: 409, 423 or 429.
        retry_after: As in `lock_for`.
        fail_fast: As in `lock_for`.
        fair: As in `lock_for`.
        declared: As in `lock_for`.

    Raises:
        ConfigurationError: As in `lock_for`.

    Safety: as in `lock_for`.
    """
    options = {
        "ttl": ttl,
        "blocking_timeout": blocking_timeout,
        "max_hold": max_hold,
        "min_hold": min_hold,
        "fail_fast": fail_fast,
        "fair": fair,
    }
    policy = Policy((template,), options, held_status, retry_after, limit)
    return LockDependency(policy, declared)


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
