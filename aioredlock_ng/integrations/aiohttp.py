"""Locks for aiohttp's server: a cleanup context, the manager and a decorator; it never decides when a lock is granted or lost.

Needs the extra `aiohttp`. Nothing is imported or opened before a module of yours imports this one.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioredlock_ng import ConfigurationError, Lease, LockLost, LockNotAcquired, Redlock

from ._policy import Policy, checked_manager
from ._template import UnusableValue, is_textual
from ._threads import outlasting

try:
    from aiohttp import web
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f'{__name__} needs aiohttp: install aioredlock-ng with its extra "aiohttp"',
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

__all__ = ["REDLOCK", "LockUnavailable", "check_locks", "lease_of", "locked", "redlock_ctx"]

REDLOCK: Final = web.AppKey("redlock", Redlock)
"""The app's manager: `request.config_dict[REDLOCK]`, in apps below that one too."""

# Typed keys for requests are newer than those for apps, and plain ones are warned of since.
_LEASE: Final[Any] = (
    web.RequestKey("lease", Lease) if hasattr(web, "RequestKey") else "aioredlock_ng.lease"
)
_LOCKS: Final = "__aioredlock_ng_locks__"

H = TypeVar("H", bound="Callable[..., Awaitable[web.StreamResponse]]")


class LockUnavailable(web.HTTPError):
    """The lock was held by another (409 or 423), could not be asked for, or was lost (503); JSON, with Retry-After.

    aiohttp answers it by itself. A middleware that catches it answers otherwise; `__cause__` is the library's error, with
    the votes of the nodes.
    """

    def __init__(self, status: int, detail: str, headers: Mapping[str, str]) -> None:
        self.status_code = status
        super().__init__(
            text=json.dumps({"detail": detail}), headers=headers, content_type="application/json"
        )


def redlock_ctx(redlock: Redlock | None = None) -> Callable[[web.Application], AsyncIterator[None]]:
    """A cleanup context that opens a manager as `app[REDLOCK]` and closes it: `app.cleanup_ctx.append(redlock_ctx())`.

    Args:
        redlock: A manager that is not open yet; None: `Redlock.from_env()`, when the app starts.

    Returns:
        The cleanup context. It raises `ConfigurationError` for settings and locks that are unusable, see `check_locks`.

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
    held_status: int = 423,
    retry_after: int = 1,
    fail_fast: bool = True,
    fair: bool = False,
) -> Callable[[H], H]:
    """Hold a lock named by the request's values while a handler runs; `lease_of(request)` is the lease.

    It is free before a response that the handler returns is sent; a stream that the handler writes is within the lock.
    A lock that is lost cancels the handler, which is answered by 503, or by a closed connection if a stream has begun. On
    functions, methods that end in the request, and the methods of a `web.View`.

    Args:
        template: The lock's name. `{id}` is a variable of the route's path, or of the query if `query` says so.
        more: Names of further locks, taken together: all or nothing.
        path: What makes a value of a path variable's text: `{"id": int}`, so that /7 and /07 are one lock as they are one
            account. Result: str, int, UUID, date or Enum. What it raises as ValueError is answered by 400. Not named: text.
        query: The placeholders that come from the query, and the like for them: `{"size": str}`.
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

    Raises:
        ConfigurationError: An argument is unusable. What depends on the route is found by `check_locks`, when the app starts.

    Safety: as `async with redlock.lock(...)`: however the handler ends, a client that went away included, the lock is released.
        A handler that is cancelled while it waits for a thread leaves the lock to expire.
    """
    options = {
        "ttl": ttl,
        "blocking_timeout": blocking_timeout,
        "max_hold": max_hold,
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
                f"locked() is for handlers defined by `async def`, not {handler!r}; write it directly above"
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
    """The lease of the innermost lock that `locked` holds for this request.

    Raises:
        ConfigurationError: There is none.
    """
    lease: Lease | None = request.get(_LEASE)
    if lease is None:
        raise ConfigurationError(
            "no lock is held for this request; decorate its handler by @locked(...)"
        )
    return lease


def check_locks(app: web.Application, redlock: Redlock | None = None) -> None:
    """Check the locks of all handlers against their routes; `redlock_ctx` does it at start.

    Args:
        app: With all its routes; those of apps below it count too.
        redlock: Whose limits the locks' options must keep; None: not checked.

    Raises:
        ConfigurationError: A placeholder is no variable of the route's path, or an option is unusable; says which and where.
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
    """One `locked`: the policy, and where its values come from."""

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
            _check_makers(argument, given, bare)
            if unused := given.keys() - needed:
                raise ConfigurationError(
                    f"{argument} names {', '.join(sorted(map(str, unused)))}, no placeholder of the lock's name"
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
                f"{where}: the lock {self} needs {', '.join(sorted(unknown))}; variables of this path are:"
                f" {', '.join(sorted(variables)) or 'none'}; what comes from the query is named by query="
            )
        if redlock is not None:
            self._policy.check(redlock)

    def __str__(self) -> str:
        return ", ".join(template.text for template in self._policy.templates)

    async def hold(
        self, request: web.Request, handle: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            lock = self._policy.lock(self._redlock_of(request), self._values(request))
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
            # Behind a response that has begun, another one would be taken for a part of it.
            if lease is None or not lease.was_gone or request.writer.output_size > 0:
                raise
            raise self._unavailable(error) from error
        finally:
            request[_LEASE] = outer

    def _redlock_of(self, request: web.Request) -> Redlock:
        redlock = request.config_dict.get(REDLOCK)
        if redlock is None:
            raise ConfigurationError(
                "this app has no Redlock: write app.cleanup_ctx.append(redlock_ctx()) here or in the app above it"
            )
        return redlock

    def _unavailable(self, error: LockNotAcquired | LockLost) -> LockUnavailable:
        return LockUnavailable(*self._policy.answer(error))

    def _values(self, request: web.Request) -> dict[str, object]:
        values: dict[str, object] = {}
        for given, makers in (
            (request.match_info, self._from_path),
            (request.query, self._from_query),
        ):
            for name, make in makers.items():
                if name not in given:
                    raise UnusableValue(f"{name} is missing")
                try:
                    values[name] = make(given[name])
                except ValueError as error:
                    raise UnusableValue(f"{name} is not possible: {error}") from error
        return values


def _check_makers(argument: str, makers: Any, bare: set[str]) -> None:
    """Check what `path` or `query` says, as far as that is possible without a request.

    Args:
        argument: What the errors call it.
        makers: As the user gave it.
        bare: Placeholders whose values are in the name themselves, and not an attribute of them.

    Raises:
        ConfigurationError: It is no mapping, or something in it makes no value that a name can have.
    """
    if not isinstance(makers, Mapping):
        raise ConfigurationError(
            f'{argument} must be a mapping like {{"id": int}}, not {type(makers).__name__}'
        )
    for name, make in makers.items():
        if not callable(make):
            raise ConfigurationError(
                f"{argument} must say what makes a value of the text of {name}, like {{{name!r}: int}}; got {make!r}"
            )
        if name in bare and isinstance(make, type) and (make is date or not is_textual(make)):
            raise ConfigurationError(
                f"{argument} makes a {make.__name__} of {name}, and needed is what makes a str, int, UUID, date or Enum of a"
                " text: int, str, UUID, date.fromisoformat, an Enum, or a function of yours"
            )


def _handlers(handler: Any) -> Iterator[Any]:
    """The handler, or the methods of a class-based one."""
    yield handler
    if inspect.isclass(handler):
        for _, method in inspect.getmembers(handler, inspect.isfunction):
            yield method
