"""Provide locks for aiohttp's server: a cleanup context and a decorator.

The module needs the extra `aiohttp`. Only an import of this module imports aiohttp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aioredlock_ng import ConfigurationError, Lease, Redlock

from ._policy import Policy, checked_manager

try:
    from ._handlers import LEASE, REDLOCK, Locks, LockUnavailable, locks_of
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f'{__name__} needs aiohttp: install aioredlock-ng with its extra "aiohttp"',
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from aiohttp import web

__all__ = [
    "REDLOCK",
    "LockUnavailable",
    "check_locks",
    "lease_of",
    "locked",
    "redlock_ctx",
    "semaphore_for",
]

H = TypeVar("H", bound="Callable[..., Awaitable[web.StreamResponse]]")


def redlock_ctx(redlock: Redlock | None = None) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return a cleanup context that opens a manager as `app[REDLOCK]` and closes it.

    Use it as `app.cleanup_ctx.append(redlock_ctx())`.

    Args:
        redlock: A manager that is not open yet. None: `Redlock.from_env()` at the start of the app.

    Returns:
        The cleanup context. It raises `ConfigurationError` for invalid settings and locks
        (`check_locks`).

    Raises:
        ConfigurationError: `redlock` is no manager.
    """
    given = checked_manager("redlock_ctx", redlock)

    async def context(app: web.Application) -> AsyncIterator[None]:
        manager = Redlock.from_env() if given is None else given
        check_locks(app, manager)
        async with manager:
            app[REDLOCK] = manager
            yield

    return context


def locked(
    template: str,
    *more: str,
    path: Mapping[str, Callable[[str], object]] | None = None,
    query: Mapping[str, Callable[[str], object]] | None = None,
    ttl: float | None = None,
    blocking_timeout: float | None = 0.0,
    max_hold: float | None = None,
    min_hold: float | None = None,
    held_status: int = 423,
    retry_after: int = 1,
    fail_fast: bool = True,
    fair: bool = False,
) -> Callable[[H], H]:
    """Hold a lock, named by the request's values, while a handler runs.

    `lease_of(request)` is the lease. The lock is released before a returned response is sent. A
    stream that the handler writes is sent under the lock. A loss of the lock cancels the handler.
    The client then receives 503, or a closed connection if a stream has begun. The decorator works
    on functions, on methods whose last argument is the request, and on the methods of a `web.View`.

    Args:
        template: The lock's name. `{id}` is a variable of the route's path, or of the query if
            `query` names it.
        more: Names of further locks, which are acquired together: all or nothing.
        path: Converters from the text of a path variable to a value: `{"id": int}` gives /7 and /07
            the same lock. The value must be a str, int, UUID, date or Enum. A ValueError is
            answered by 400. Default: the text itself.
        query: The placeholders that come from the query, with their converters: `{"size": str}`.
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

    Raises:
        ConfigurationError: An argument is invalid. `check_locks` finds errors that depend on the
            route at the start of the app.

    Safety: as `async with redlock.lock(...)`. The lock is released however the handler ends, also
    if the client goes away. If a handler is cancelled while it waits for a thread, the lock is left
    to expire.
    """
    options = {
        "ttl": ttl,
        "blocking_timeout": blocking_timeout,
        "max_hold": max_hold,
        "min_hold": min_hold,
        "fail_fast": fail_fast,
        "fair": fair,
    }
    return Locks(
        "locked", Policy((template, *more), options, held_status, retry_after), path, query
    )


def semaphore_for(
    template: str,
    limit: int,
    *,
    path: Mapping[str, Callable[[str], object]] | None = None,
    query: Mapping[str, Callable[[str], object]] | None = None,
    ttl: float | None = None,
    blocking_timeout: float | None = 0.0,
    max_hold: float | None = None,
    min_hold: float | None = None,
    held_status: int = 429,
    retry_after: int = 1,
    fail_fast: bool = True,
    fair: bool = False,
) -> Callable[[H], H]:
    """Hold a slot of a semaphore, named by the request's values, while a handler runs.

    At most `limit` requests of one name are inside at the same time, in all processes. The
    decorator is used like `locked`, and `lease_of(request).slot` is the number of the slot.

    Args:
        template: The semaphore's name, as in `locked`.
        limit: The number of slots, 1 to 1,000.
        path: As in `locked`.
        query: As in `locked`.
        ttl: As in `locked`.
        blocking_timeout: Seconds to wait while other requests hold all slots. None: for ever. 0:
            no wait.
        max_hold: As in `locked`.
        min_hold: Seconds for which the slot stays taken at least. So at most `limit` requests
            begin within that time.
        held_status: Status if other requests hold all slots: 409, 423 or 429.
        retry_after: As in `locked`.
        fail_fast: As in `locked`.
        fair: As in `locked`.

    Raises:
        ConfigurationError: As in `locked`.

    Safety: as in `locked`.
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
    return Locks("semaphore_for", policy, path, query)


def lease_of(request: web.Request) -> Lease:
    """Return the lease of the innermost lock or slot that this request holds.

    Raises:
        ConfigurationError: The request holds no lock.
    """
    lease: Lease | None = request.get(LEASE)
    if lease is None:
        raise ConfigurationError(
            "no lock is held for this request; decorate its handler with @locked(...) or"
            " @semaphore_for(...)"
        )
    return lease


def check_locks(app: web.Application, redlock: Redlock | None = None) -> None:
    """Check the locks of all handlers against their routes. `redlock_ctx` does this at the start.

    Args:
        app: The app with all its routes. Routes of its subapps count as well.
        redlock: The manager whose limits the options must keep. None: limits are not checked.

    Raises:
        ConfigurationError: A placeholder is no variable of the route's path, or an option is
            invalid. The message names the error and the route.
    """
    for route in app.router.routes():
        info = route.resource.get_info() if route.resource is not None else {}
        pattern = info.get("pattern")
        variables = frozenset(pattern.groupindex) if pattern is not None else frozenset()
        where = info.get("formatter") or info.get("path") or "*"
        for locks in locks_of(route.handler):
            locks.check(f"{route.method} {where}", variables, redlock)
