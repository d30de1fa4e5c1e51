"""Provide locks for aiohttp's server: a cleanup context and a decorator.

The module needs the extra `aiohttp`. `import aioredlock_ng` does not import aiohttp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aioredlock_ng import ConfigurationError, Lease, Redlock

from ._policy import Policy, manager_or_none

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
    """Return a cleanup context that opens a manager, sets `app[REDLOCK]`, and closes the manager.

    Add the context by `app.cleanup_ctx.append(redlock_ctx())`.

    Args:
        redlock: A manager that is not open yet. None: the result of `Redlock.from_env()` at the
            start of the app.

    Returns:
        The cleanup context, which raises `ConfigurationError` if a setting is invalid, or if a lock
        does not pass `check_locks`.

    Raises:
        ConfigurationError: `redlock` is not a manager.
    """
    given = manager_or_none("redlock_ctx", redlock)

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
    owner: str | Callable[..., str | None] | None = None,
    fail_fast: bool = True,
    fair: bool = False,
    shared: bool = False,
) -> Callable[[H], H]:
    """Hold a lock while a handler runs. The lock's name may contain values of the request.

    `lease_of(request)` returns the lease. A response that the handler returns is sent after the
    release. A stream that the handler writes is sent while the lock is held. A loss of the lock
    cancels the handler. The client then receives 503. If a stream has begun, the connection is
    closed instead. The decorator works on functions, on methods whose last argument is the request,
    and on the methods of a `web.View`.

    Args:
        template: The lock's name. A placeholder such as `{id}` is a variable of the route's path.
            If the argument `query` contains `id`, the value comes from the query instead.
        more: Names of further locks, which are acquired together: all or nothing.
        path: Converters from the text of a path variable to a value. With `{"id": int}`, /7 and /07
            get the same lock. The value must be a str, int, UUID, date or Enum. If a converter
            raises ValueError, the answer is 400. Default: the text itself.
        query: The placeholders that come from the query, with their converters: `{"size": str}`.
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
            "account {id}". A function returns the label, or None for the manager's label. The
            function's parameters name the values that it receives. A placeholder or parameter
            `request` receives the request itself. A label is one printable line of at most 200
            bytes. If the text is anything else, the client receives 400. None: the manager's label.
        fail_fast: If no quorum of nodes can grant, answer 503 after one attempt instead of waiting
            for `blocking_timeout`.
        fair: Serve the waiting requests of all processes strictly in the order of their arrival.
            The option makes requests slower, and has no effect with `blocking_timeout=0`.
        shared: If True, the lock is `rwlock(name).read()`. Use it, for example, in a GET handler.
            Requests with the same lock name may then run at the same time. A lock of the same name
            without `shared` is a writer. With `shared`, `more`, `min_hold` and `fair` are not
            possible.

    Raises:
        ConfigurationError: An argument is invalid. Errors that depend on the route are found by
            `check_locks`, at the start of the app.

    Safety: as in `async with redlock.lock(...)`. The lock is released when the handler ends, except
    in one case. If the handler is cancelled while it waits for a thread, the lock is left to
    expire.
    """
    return Locks("locked", Policy.of((template, *more), locals()), path, query)


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
    owner: str | Callable[..., str | None] | None = None,
    fail_fast: bool = True,
    fair: bool = False,
) -> Callable[[H], H]:
    """Hold a slot of a semaphore while a handler runs.

    The semaphore's name may contain values of the request. At most `limit` requests with the same
    name run at the same time, in all processes together. The decorator is used like `locked`, and
    `lease_of(request).slot` is the number of the slot.

    `limit` is the number of slots, 1 to 1,000. A slot stays taken for at least `min_hold` seconds,
    so at most `limit` requests begin within that time. `held_status` is the status if other
    requests hold all slots: 409, 423 or 429. All other arguments, errors and the safety under
    cancellation are as in `locked`.
    """
    return Locks("semaphore_for", Policy.of((template,), locals()), path, query)


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
        app: The app with all its routes. Routes of its subapps are checked as well.
        redlock: The manager whose limits apply to the options. None: no limits are checked.

    Raises:
        ConfigurationError: A placeholder is neither a variable of the route's path nor in `query`,
            or an option is invalid. The message names the route.
    """
    for route in app.router.routes():
        info = route.resource.get_info() if route.resource is not None else {}
        pattern = info.get("pattern")
        variables = frozenset(pattern.groupindex) if pattern is not None else frozenset()
        where = info.get("formatter") or info.get("path") or "*"
        for locks in locks_of(route.handler):
            locks.check(f"{route.method} {where}", variables, redlock)
