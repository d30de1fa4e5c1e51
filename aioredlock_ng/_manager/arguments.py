"""Check the arguments of `Redlock` that are not settings: nodes, sinks, clocks and randomness."""

from __future__ import annotations

import math
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.fencing import LATEST_US
from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioredlock_ng._nodes.connect import Connector
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng.events import EventSink

__all__ = ["check_clocks", "check_surroundings", "checked_nodes", "checked_sinks"]


def check_surroundings(clock: object, wall_clock: object, rng: object) -> None:
    """Refuse clocks that are not callable, and an `rng` without `random` or `getrandbits`."""
    if not callable(clock):
        raise ConfigurationError(
            f"clock must be a callable that returns seconds, not {type(clock).__name__}; leave it"
            " out"
        )
    if wall_clock is not None and not callable(wall_clock):
        raise ConfigurationError(
            "wall_clock must be a callable that returns seconds since 1970, or None, not"
            f" {type(wall_clock).__name__}"
        )
    if rng is not None and not all(
        callable(getattr(rng, draw, None)) for draw in ("random", "getrandbits")
    ):
        raise ConfigurationError(f"rng must be a random.Random or None, not {type(rng).__name__}")


def check_clocks(clock: Callable[[], float], wall_us: Callable[[], int]) -> None:
    """Read both clocks once, and refuse a time with which the manager cannot work.

    `wall_us` returns microseconds since 1970. A fence has no room for negative or very late times.
    """
    now: object = clock()
    if not isinstance(now, (int, float)) or not -math.inf < now < math.inf:
        raise ConfigurationError(
            f"clock must return a finite number of seconds; it returns {now!r}; leave it out"
        )
    try:
        wall = wall_us()
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"wall_clock must return seconds since 1970 as a number; its call failed: {error}"
        ) from error
    if not 0 <= wall < LATEST_US:
        raise ConfigurationError(
            f"wall_clock must return seconds since 1970, from 0 to {LATEST_US / 1e6:g};"
            f" it returns {wall / 1e6:g}"
        )


def checked_sinks(sinks: Iterable[EventSink]) -> tuple[EventSink, ...]:
    """Return the sinks as a tuple.

    Raises:
        ConfigurationError: `sinks` is not an iterable of callables, or a sink is a coroutine
            function.
    """
    if callable(sinks) or not hasattr(sinks, "__iter__"):
        raise ConfigurationError(
            f"sinks must be a list of callables that take an event, not {type(sinks).__name__}"
        )
    checked = tuple(sinks)
    for sink in checked:
        if not callable(sink):
            raise ConfigurationError(
                f"sinks must be callables that take an event; {sink!r} is not callable"
            )
        method = getattr(sink, "__call__", None)  # noqa: B004
        if iscoroutinefunction(sink) or iscoroutinefunction(method):
            raise ConfigurationError(
                f"sinks are called and never awaited; {sink!r} is a coroutine function; use a"
                " plain function"
            )
    return checked


def checked_nodes(nodes: Iterable[object]) -> list[Connector | Node]:
    """Return the nodes as a list. Each URL and each client becomes a `Connector`.

    Raises:
        ConfigurationError: There is no node, a node is unusable, or two nodes name the same server.
    """
    if isinstance(nodes, (str, bytes, dict)) or not hasattr(nodes, "__iter__"):
        raise ConfigurationError(
            f"nodes must be a list of URLs, clients or node objects, not {type(nodes).__name__}"
        )
    # This import also loads redis-py, which takes longer than the rest of the package. So the
    # import is not at the top of the module.
    from aioredlock_ng._nodes.connect import Connector

    checked: list[Any] = [node if hasattr(node, "ask") else Connector(node) for node in nodes]
    if not checked:
        raise ConfigurationError(
            "nodes is empty; name at least one server, better three or five independent ones"
        )
    seen: dict[object, str] = {}
    for node in checked:
        identity = node.identity if isinstance(node, Connector) else id(node)
        if identity in seen:
            raise ConfigurationError(
                f"nodes names the same server twice: {seen[identity]} and {node.address};"
                " name each server once, or a quorum has no meaning"
            )
        seen[identity] = node.address
    return checked
