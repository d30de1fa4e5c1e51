"""Find out how FastAPI runs an endpoint, and track the endpoints that run in threads."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from ._threads import Work, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import HTTPConnection

__all__ = ["is_async", "work_of", "yields"]

_WORK: Final = "aioredlock_ng.work"


def work_of(connection: HTTPConnection) -> Work:
    """Return the request's `Work`, which counts the running threads of a `def` endpoint."""
    scope = connection.scope
    # A router may be included in several places. FastAPI keeps a separate `dependant` of the
    # endpoint for each place, so take the one of the place that matched this request.
    route = scope.get("fastapi", {}).get("effective_route_context") or scope.get("route")
    dependant = getattr(route, "dependant", None)
    if dependant is not None and not (is_async(dependant.call) or yields(dependant.call)):
        # FastAPI decided to use a thread before this wrapper replaced the endpoint, so it calls the
        # wrapper in a thread as well.
        dependant.call = watched(dependant.call)
    work: Work | None = scope.get(_WORK)
    if work is None or work.over:
        # If a middleware passes a request to the app twice, the scope still has the `Work` of the
        # first call. That `Work` has ended, so the second call needs a new one.
        work = scope[_WORK] = Work()
    work.enter()
    return work


def is_async(endpoint: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(endpoint))


def yields(endpoint: Callable[..., Any]) -> bool:
    """Return True for an endpoint that streams its response by `yield`."""
    plain = inspect.unwrap(endpoint)
    return inspect.isasyncgenfunction(plain) or inspect.isgeneratorfunction(plain)
