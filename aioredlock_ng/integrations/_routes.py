"""The routes of a FastAPI app as they are served, those of included routers and mounted apps too; it changes none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi import FastAPI, routing
from starlette.routing import Mount, WebSocketRoute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Served", "dependencies_of", "served"]


class Served(NamedTuple):
    """One route: where, in which app, and with which variables in its whole path."""

    app: FastAPI
    route: Any
    variables: frozenset[str]
    websocket: bool


def served(app: FastAPI, outer: frozenset[str] = frozenset()) -> Iterator[Served]:
    """Every route of the app and of those below it.

    Args:
        app: The app.
        outer: Variables of the path that it is mounted at.
    """
    # Since FastAPI includes routers by reference, only this function of it gives routes with the prefixes that they have.
    contexts: Callable[[Any], Iterable[Any]] = getattr(routing, "iter_route_contexts", iter)
    for route in contexts(app.routes):
        variables = outer | frozenset(getattr(route, "param_convertors", ()))
        original = getattr(route, "original_route", route)
        if isinstance(original, Mount) and isinstance(original.app, FastAPI):
            yield from served(original.app, variables)
        elif getattr(route, "dependant", None) is not None:
            yield Served(app, route, variables, isinstance(original, WebSocketRoute))


def dependencies_of(dependant: Any) -> Iterator[Any]:
    """A route's dependencies, and theirs, as FastAPI has them: each has `call` and `scope`."""
    for inner in dependant.dependencies:
        yield inner
        yield from dependencies_of(inner)
