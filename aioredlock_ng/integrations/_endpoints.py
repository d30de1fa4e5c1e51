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
    """Return the `Work` of a request, which tracks the threads of its endpoint."""
    scope = connection.scope
    # A route of an included router has one set of parameters, and so one endpoint, per place.
    route = scope.get("fastapi", {}).get("effective_route_context") or scope.get("route")
    dependant = getattr(route, "dependant", None)
    if dependant is not None and not (is_async(dependant.call) or yields(dependant.call)):
        # FastAPI calls the object in this attribute, and has already decided whether to use a
        # thread.
        dependant.call = watched(dependant.call)
    work: Work | None = scope.get(_WORK)
    if work is None or work.over:
        # A middleware that handles a request a second time passes the same scope, whose work has
        # ended.
        work = scope[_WORK] = Work()
    work.enter()
    return work


def is_async(endpoint: Callable[..., Any]) -> bool:
    """Return True for an endpoint that FastAPI awaits."""
    return inspect.iscoroutinefunction(inspect.unwrap(endpoint))


def yields(endpoint: Callable[..., Any]) -> bool:
    """Return True for an endpoint that streams its response by `yield`."""
    plain = inspect.unwrap(endpoint)
    return inspect.isasyncgenfunction(plain) or inspect.isgeneratorfunction(plain)
