"""Provide locks for FastAPI: a lifespan, and the manager and locks as dependencies.

The module needs the extra `fastapi`. `import aioredlock_ng` does not import FastAPI.
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
from ._policy import Policy, manager_or_none
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

    Use the lifespan as `FastAPI(lifespan=redlock_lifespan())`, or inside your own lifespan:
    `async with redlock_lifespan()(app): ...`. The lifespan yields the manager as lifespan state, so
    that mounted apps receive it too. At the end, `app.state.redlock` has its former value again, or
    None.

    Args:
        redlock: A manager that is not open yet. None: the result of `Redlock.from_env()` at the
            start of the app.

    Returns:
        The lifespan, which raises `ConfigurationError` if a setting is invalid, or if a lock does
        not pass `check_locks`.

    Raises:
        ConfigurationError: `redlock` is not a manager.
    """
    given = manager_or_none("redlock_lifespan", redlock)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Redlock]]:
        manager = Redlock.from_env() if given is None else given
        check_locks(app, manager)
        async with manager:
            outer = getattr(app.state, "redlock", None)
            app.state.redlock = manager
            try:
                yield {"redlock": manager}
            finally:
                app.state.redlock = outer

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
    owner: str | Callable[..., str | None] | None = None,
    fail_fast: bool = True,
    fair: bool = False,
    shared: bool = False,
    **declared: Any,
) -> LockDependency:
    """Return a dependency that holds a lock while a request is handled.

    The lock's name may contain values of the request. The value of the dependency is the `Lease`.

    Use the dependency in `dependencies=[...]`, or as
    `Annotated[Lease, Depends(lock_for("order:{order_id}"), scope="function")]`. With
    `scope="function"` the lock is released when the endpoint returns, before the response is sent.
    Without this scope the lock is held until the response and its background tasks are done, even
    if the response is a stream. An endpoint with `yield` still runs while its stream is sent. With
    `scope="function"` the endpoint would then run without the lock, so `check_locks` refuses this
    combination.

    A loss of the lock cancels the endpoint, and the client receives 503. If the response has
    already begun, the connection is closed early instead, and the server logs the error.

    A `def` endpoint runs in a thread, which nothing can cancel. After a loss the client receives
    503 immediately, while the thread goes on. So the endpoint should call `lease.check()` before
    any step that must not happen twice.

    Args:
        template: The lock's name. A placeholder such as `{order_id}` names a path or query
            parameter of the endpoint. The placeholder is replaced by the value that the endpoint
            receives. The value must be a str, int, UUID, date or Enum. Two equal values of one of
            these types always have the same text.
        more: Names of further locks, which are acquired together: all or nothing.
        ttl: Seconds until the lock expires without renewal. None: the manager's ttl.
        blocking_timeout: Seconds to wait while another request holds the lock. None: for ever. 0:
            no wait. Without a wait, simultaneous requests in several processes may all be refused,
            because no request gets a majority. A short wait prevents this.
        max_hold: Seconds after which the lock is lost, even if a renewal is possible. None: never.
        min_hold: Shortest time in seconds for which the lock stays taken; see `Redlock.lock`.
        held_status: Status if another request holds the lock: 409 or 423.
        retry_after: Whole seconds for the Retry-After header of 409, 423 and 503. The header has a
            larger value, up to an hour, if a longer wait is likely. That is so while nodes are
            quarantined (status 503), and while `min_hold` keeps the lock (status `held_status`).
        owner: Label of the holder, which `inspect` shows. A text may have placeholders, as in
            "order {order_id}". A function returns the label, or None for the manager's label. The
            function's parameters name the values that it receives. A placeholder or parameter
            `request` receives the request itself. A label is one printable line of at most 200
            bytes. If the text is anything else, the client receives 422. None: the manager's label.
        fail_fast: If no quorum of nodes can grant, answer 503 after one attempt instead of waiting
            for `blocking_timeout`.
        fair: Serve the waiting requests of all processes strictly in the order of their arrival.
            The option makes requests slower, and has no effect with `blocking_timeout=0`.
        shared: If True, the lock is `rwlock(name).read()`. Use it, for example, in a GET endpoint.
            Requests with the same lock name may then run at the same time. A lock of the same name
            without `shared` is a writer. With `shared`, `more`, `min_hold` and `fair` are not
            possible.
        declared: Sources of the name's and label's values that come neither from the path nor from
            the query. Declare them like the parameters of a dependency. Examples:
            `user=Depends(current_user)`, `tenant=Annotated[str, Header()]`, or `order=Order` for
            the body's model, which the endpoint receives as `order`. A placeholder with the name of
            an option, such as `{owner}`, always gets its value from the endpoint's parameter of
            that name.

    Raises:
        ConfigurationError: An argument is invalid. Errors that depend on the route are found by
            `check_locks`, at the start of the app.

    Safety: as in `async with redlock.lock(...)`. The lock is released when the request ends, except
    in two cases. If the request is cancelled while its `def` endpoint works in a thread, the lock
    is held and renewed until the thread has ended. If the request is cancelled while it waits for
    any other thread, the lock is left to expire.
    """
    return LockDependency(Policy.of((template, *more), locals()), declared)


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
    owner: str | Callable[..., str | None] | None = None,
    fail_fast: bool = True,
    fair: bool = False,
    **declared: Any,
) -> LockDependency:
    """Return a dependency that holds a slot of a semaphore while a request is handled.

    The semaphore's name may contain values of the request. At most `limit` requests with the same
    name run at the same time, in all processes together. The dependency is used like the result of
    `lock_for`. Its value is the `Lease`, and `lease.slot` is the number of the slot.

    `limit` is the number of slots, 1 to 1,000. A slot stays taken for at least `min_hold` seconds,
    so at most `limit` requests begin within that time. `held_status` is the status if other
    requests hold all slots: 409, 423 or 429. All other arguments, errors and the safety under
    cancellation are as in `lock_for`.
    """
    return LockDependency(Policy.of((template,), locals()), declared)


def check_locks(app: FastAPI, redlock: Redlock | None = None) -> None:
    """Check the locks of all routes, and add the locks' answers to the app's OpenAPI. Idempotent.

    `redlock_lifespan` calls this function at the start. If you make the OpenAPI document without
    starting the app, call the function yourself after you have added the last route.

    Args:
        app: The app. Included routers and mounted apps are checked as well.
        redlock: The manager whose limits apply to the options. None: no limits are checked.

    Raises:
        ConfigurationError: An option is invalid, or a lock does not fit its route, for example
            because the route lacks a value. The message names the route.
    """
    for place, route, variables, websocket in served(app):
        for dependency in dependencies_of(route.dependant):
            if not isinstance(lock := dependency.call, LockDependency):
                continue
            try:
                if websocket:
                    raise ConfigurationError(
                        "a WebSocket cannot receive the lock's error answers; use `async with"
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
                place.openapi_schema = None  # an older document lacks the lock's answers
