"""List the routes that a FastAPI app serves, including those of its routers and mounted apps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi import FastAPI, routing
from starlette.routing import Mount, WebSocketRoute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Served", "dependencies_of", "served"]


class Served(NamedTuple):
    """One route, with its app and the variables of its whole path."""

    app: FastAPI
    route: Any
    variables: frozenset[str]
    websocket: bool


def served(app: FastAPI, outer: frozenset[str] = frozenset()) -> Iterator[Served]:
    """Yield the routes with FastAPI endpoints, of the app and of the apps mounted in it.

    `outer` contains the variables of the path at which the app is mounted.
    """
    # Newer versions of FastAPI include routers by reference. Only `iter_route_contexts` then
    # returns routes with their full prefixes.
    contexts: Callable[[Any], Iterable[Any]] = getattr(routing, "iter_route_contexts", iter)
    for route in contexts(app.routes):
        variables = outer | frozenset(getattr(route, "param_convertors", ()))
        original = getattr(route, "original_route", route)
        if isinstance(original, Mount) and isinstance(original.app, FastAPI):
            yield from served(original.app, variables)
        elif getattr(route, "dependant", None) is not None:
            yield Served(app, route, variables, isinstance(original, WebSocketRoute))


def dependencies_of(dependant: Any) -> Iterator[Any]:
    """Yield the dependencies of a route, including nested dependencies."""
    for inner in dependant.dependencies:
        yield inner
        yield from dependencies_of(inner)
