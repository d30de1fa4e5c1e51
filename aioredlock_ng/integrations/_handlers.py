"""Hold the locks of an aiohttp handler while it runs."""

from __future__ import annotations

import functools
import inspect
import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiohttp import web

from aioredlock_ng import ConfigurationError, Lease, LockLost, LockNotAcquired, Redlock
from aioredlock_ng._notes import is_loss

from ._makers import check_makers, values_of
from ._template import UnusableValue
from ._threads import outlasting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from ._policy import Policy

__all__ = ["LEASE", "REDLOCK", "LockUnavailable", "Locks", "locks_of"]

REDLOCK: Final = web.AppKey("redlock", Redlock)
"""Key of the app's manager. Handlers of app and subapps use `request.config_dict[REDLOCK]`."""

# Key of the lease in a request. Newer versions of aiohttp warn if this key is a str. Older versions
# have no other kind of key for requests.
LEASE: Final[Any] = (
    web.RequestKey("lease", Lease) if hasattr(web, "RequestKey") else "aioredlock_ng.lease"
)
_LOCKS: Final = "__aioredlock_ng_locks__"
_REQUEST: Final = "request"

H = TypeVar("H", bound="Callable[..., Awaitable[web.StreamResponse]]")


class LockUnavailable(web.HTTPError):
    """The HTTP error for a request that did not get its lock, or lost it.

    The status is 409, 423 or 429 if other requests held the lock or all slots. The status is 503 if
    no quorum of nodes could grant the lock, or if the lock was lost. The answer is JSON with a
    Retry-After header. A middleware may catch this error and answer differently. `__cause__` is the
    library's error with the votes of the nodes.
    """

    def __init__(self, status: int, detail: str, headers: Mapping[str, str]) -> None:
        self.status_code = status
        super().__init__(
            text=json.dumps({"detail": detail}), headers=headers, content_type="application/json"
        )


class Locks:
    """The decorator that `locked` or `semaphore_for` returns.

    Args:
        called: Name of the decorator, for errors.
        policy: The names, options and answers of the lock.
        path: Converters for placeholders that come from the route's path.
        query: Converters for placeholders that come from the query.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        called: str,
        policy: Policy,
        path: Mapping[str, Callable[[str], object]] | None,
        query: Mapping[str, Callable[[str], object]] | None,
    ) -> None:
        path = {} if path is None else path
        query = {} if query is None else query
        needed = {
            placeholder.name for placeholder in (*policy.placeholders, *policy.labelled({_REQUEST}))
        }
        bare = {
            placeholder.name for placeholder in policy.placeholders if not placeholder.attributes
        }
        for argument, given in (("path", path), ("query", query)):
            check_makers(argument, given, bare)
            if unused := given.keys() - needed:
                raise ConfigurationError(
                    f"{argument} names {', '.join(sorted(map(str, unused)))}, which is no"
                    " placeholder of the lock's name or owner"
                )
        if both := path.keys() & query.keys():
            raise ConfigurationError(
                f"{', '.join(sorted(both))} can come from the path or from the query, not from both"
                "; leave it out of path= or of query="
            )
        self._called = called
        self._policy = policy
        self._from_path = {name: path.get(name, str) for name in needed - query.keys()}
        self._from_query = dict(query)

    def __call__(self, handler: H) -> H:
        """Return the handler in a wrapper that holds the lock during each call.

        Raises:
            ConfigurationError: The handler is not a coroutine function.
        """
        if not inspect.iscoroutinefunction(handler):
            raise ConfigurationError(
                f"{self._called}() is for handlers defined by `async def`, not {handler!r}; write"
                " it directly above the `async def`"
            )

        @functools.wraps(handler)
        async def call(*arguments: Any) -> web.StreamResponse:
            last = arguments[-1]
            request = last.request if isinstance(last, web.View) else last
            return await self._hold(request, functools.partial(handler, *arguments))

        setattr(call, _LOCKS, (self, *getattr(handler, _LOCKS, ())))
        return call  # type: ignore[return-value]

    def check(self, where: str, variables: frozenset[str], redlock: Redlock | None) -> None:
        """Check that a route has all values for the lock's name and label. Check the options too.

        Args:
            where: The route, for errors.
            variables: Variables of the route's path.
            redlock: The manager. None: the options are not checked.

        Raises:
            ConfigurationError: The route lacks a value, or the manager refuses an option.
        """
        if unknown := self._from_path.keys() - variables:
            raise ConfigurationError(
                f"{where}: the lock {self} needs {', '.join(sorted(unknown))}; variables of"
                f" this path are: {', '.join(sorted(variables)) or 'none'}; if a value comes"
                " from the query, name it in query="
            )
        if redlock is not None:
            self._policy.check(redlock)

    def __str__(self) -> str:
        return ", ".join(template.text for template in self._policy.templates)

    async def _hold(
        self, request: web.Request, handle: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            lock = self._policy.lock(
                self._redlock_of(request), self._values(request), {_REQUEST: request}
            )
        except UnusableValue as error:
            text = json.dumps({"detail": str(error)})
            raise web.HTTPBadRequest(text=text, content_type="application/json") from error
        outer, lease = request.get(LEASE), None
        try:
            async with lock as lease:
                request[LEASE] = lease
                with outlasting(lease):
                    return await handle()
        except LockNotAcquired as error:
            if lease is not None:
                raise
            raise self._unavailable(error) from error
        except (LockLost, ExceptionGroup) as error:
            # If a response has begun, send no error response. The client would read it as a part of
            # the first one.
            begun = request.writer.output_size > 0
            if begun or lease is None or not lease.was_gone or not is_loss(error):
                raise
            raise self._unavailable(lease.lost_error()) from error
        finally:
            request[LEASE] = outer

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


def locks_of(handler: Any) -> Iterator[Locks]:
    """Yield the locks of a handler, and of the methods of a class-based handler."""
    yield from getattr(handler, _LOCKS, ())
    if inspect.isclass(handler):
        for _, method in inspect.getmembers(handler, inspect.isfunction):
            yield from getattr(method, _LOCKS, ())
