"""Provide locks for aiohttp's server: a cleanup context and a decorator.

The module needs the extra `aiohttp`. Only an import of this module imports aiohttp.
"""

from __future__ import annotations

import functools
import inspect
import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioredlock_ng import ConfigurationError, Lease, LockLost, LockNotAcquired, Redlock

from ._makers import check_makers, values_of
from ._policy import Policy, checked_manager
from ._template import UnusableValue
from ._threads import outlasting

try:
    from aiohttp import web
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f'{__name__} needs aiohttp: install aioredlock-ng with its extra "aiohttp"',
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

__all__ = ["REDLOCK", "LockUnavailable", "check_locks", "lease_of", "locked", "redlock_ctx"]

REDLOCK: Final = web.AppKey("redlock", Redlock)
"""Key of the app's manager: `request.config_dict[REDLOCK]`, also in subapps."""

# Older versions of aiohttp have typed keys for apps only. Newer versions warn about a plain key for
# a request.
_LEASE: Final[Any] = (
    web.RequestKey("lease", Lease) if hasattr(web, "RequestKey") else "aioredlock_ng.lease"
)
_LOCKS: Final = "__aioredlock_ng_locks__"

H = TypeVar("H", bound="Callable[..., Awaitable[web.StreamResponse]]")


class LockUnavailable(web.HTTPError):
    """The lock was held by another request (409 or 423), not available, or lost (503).

    aiohttp answers with JSON and a Retry-After header. A middleware may catch this error and answer
    differently. `__cause__` is the library's error with the votes of the nodes.
    """

    def __init__(self, status: int, detail: str, headers: Mapping[str, str]) -> None:
        self.status_code = status
        super().__init__(
            text=json.dumps({"detail": detail}), headers=headers, content_type="application/json"
        )


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
        retry_after: Whole seconds for the Retry-After header of 409, 423 and 503. For 503 the value
            is larger if quarantined nodes need longer, up to an hour.
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
    locks = _Locks(
        Policy((template, *more), options, held_status, retry_after),
        {} if path is None else path,
        {} if query is None else query,
    )

    def decorate(handler: H) -> H:
        if not inspect.iscoroutinefunction(handler):
            raise ConfigurationError(
                f"locked() is for handlers defined by `async def`, not {handler!r}; write it"
                " directly above"
            )

        @functools.wraps(handler)
        async def call(*arguments: Any) -> web.StreamResponse:
            last = arguments[-1]
            request = last.request if isinstance(last, web.View) else last
            return await locks.hold(request, functools.partial(handler, *arguments))

        setattr(call, _LOCKS, (locks, *getattr(handler, _LOCKS, ())))
        return call  # type: ignore[return-value]

    return decorate


def lease_of(request: web.Request) -> Lease:
    """Return the lease of the innermost lock that `locked` holds for this request.

    Raises:
        ConfigurationError: The request holds no lock.
    """
    lease: Lease | None = request.get(_LEASE)
    if lease is None:
        raise ConfigurationError(
            "no lock is held for this request; decorate its handler with @locked(...)"
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
        for handler in _handlers(route.handler):
            for locks in getattr(handler, _LOCKS, ()):
                locks.check(f"{route.method} {where}", variables, redlock)


class _Locks:
    """One `locked`: its policy, and the sources of its values."""

    def __init__(
        self,
        policy: Policy,
        path: Mapping[str, Callable[[str], object]],
        query: Mapping[str, Callable[[str], object]],
    ) -> None:
        needed = {placeholder.name for placeholder in policy.placeholders}
        bare = {
            placeholder.name for placeholder in policy.placeholders if not placeholder.attributes
        }
        for argument, given in (("path", path), ("query", query)):
            check_makers(argument, given, bare)
            if unused := given.keys() - needed:
                raise ConfigurationError(
                    f"{argument} names {', '.join(sorted(map(str, unused)))}, which is no"
                    " placeholder of the lock's name"
                )
        if both := path.keys() & query.keys():
            raise ConfigurationError(
                f"{', '.join(sorted(both))} can come from the path or from the query, not from both"
            )
        self._policy = policy
        self._from_path = {name: path.get(name, str) for name in needed - query.keys()}
        self._from_query = dict(query)

    def check(self, where: str, variables: frozenset[str], redlock: Redlock | None) -> None:
        if unknown := self._from_path.keys() - variables:
            raise ConfigurationError(
                f"{where}: the lock {self} needs {', '.join(sorted(unknown))}; variables of"
                f" this path are: {', '.join(sorted(variables)) or 'none'}; name values from"
                " the query by query="
            )
        if redlock is not None:
            self._policy.check(redlock.lock)

    def __str__(self) -> str:
        return ", ".join(template.text for template in self._policy.templates)

    async def hold(
        self, request: web.Request, handle: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            lock = self._policy.lock(self._redlock_of(request).lock, self._values(request))
        except UnusableValue as error:
            text = json.dumps({"detail": str(error)})
            raise web.HTTPBadRequest(text=text, content_type="application/json") from error
        outer, lease = request.get(_LEASE), None
        try:
            async with lock as lease:
                request[_LEASE] = lease
                with outlasting(lease):
                    return await handle()
        except LockNotAcquired as error:
            if lease is not None:
                raise
            raise self._unavailable(error) from error
        except LockLost as error:
            # After the start of a response, a client would read a second response as a part of the
            # first.
            if lease is None or not lease.was_gone or request.writer.output_size > 0:
                raise
            raise self._unavailable(error) from error
        finally:
            request[_LEASE] = outer

    def _redlock_of(self, request: web.Request) -> Redlock:
        redlock = request.config_dict.get(REDLOCK)
        if redlock is None:
            raise ConfigurationError(
                "this app has no Redlock: write app.cleanup_ctx.append(redlock_ctx()) here or in"
                " the app above it"
            )
        return redlock

    def _unavailable(self, error: LockNotAcquired | LockLost) -> LockUnavailable:
        return LockUnavailable(*self._policy.answer(error))

    def _values(self, request: web.Request) -> dict[str, object]:
        return values_of(
            (request.match_info, self._from_path),
            (request.query, self._from_query),
        )


def _handlers(handler: Any) -> Iterator[Any]:
    """Return the handler, or the methods of a class-based handler."""
    yield handler
    if inspect.isclass(handler):
        for _, method in inspect.getmembers(handler, inspect.isfunction):
            yield method
