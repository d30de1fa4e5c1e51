"""Make the engine of a manager that is about to open."""

from __future__ import annotations

import random
import secrets
from typing import TYPE_CHECKING

from aioredlock_ng._engine.attempt.tokens import system_tokens
from aioredlock_ng._engine.engine import Engine
from aioredlock_ng._nodes.node import RedisNode
from aioredlock_ng._nodes.port import SAME_SERVER
from aioredlock_ng._scripts.catalogue import needed
from aioredlock_ng.errors import ConfigurationError, RedlockClosed
from aioredlock_ng.logs import Sinks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioredlock_ng._nodes.channel.outbox import Outbox
    from aioredlock_ng._nodes.connect import Connector
    from aioredlock_ng._nodes.fleet import Fleet
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng.events import EventSink
    from aioredlock_ng.options import Options

__all__ = ["engine_of", "nodes_of", "refuse_duplicates", "refuse_second_opening"]


def nodes_of(given: Iterable[Connector | Node], outbox: Outbox, options: Options) -> list[Node]:
    """Return the nodes in the order given, with a new `RedisNode` in place of each connector."""
    from aioredlock_ng._nodes.connect import Connector

    commands = needed(fencing=options.fencing, guard=options.recovery_guard is not None)
    return [
        RedisNode(one, outbox, options.connect_timeout, commands)
        if isinstance(one, Connector)
        else one
        for one in given
    ]


def refuse_second_opening(engine: Engine | None) -> None:
    """Raise `RedlockClosed` if the manager is open already.

    The manager may be open in another event loop, or in the parent of this forked process.
    """
    if engine is None:
        return
    try:
        engine.usable()
    except RedlockClosed as error:
        raise RedlockClosed(f"{error}: make a new Redlock in this one") from None
    raise RedlockClosed("this Redlock is open already; open it only once, or close it first")


def engine_of(
    fleet: Fleet,
    options: Options,
    log: EventSink,
    sinks: tuple[EventSink, ...],
    *,
    clock: Callable[[], float],
    wall_us: Callable[[], int],
    rng: random.Random | None,
    run_id: bytes,
) -> Engine:
    """Return an engine that is not open yet.

    Without `rng`, each call draws a new id for the manager, because the parent and the child of a
    fork may open the same `Redlock`. With the same id, they would receive each other's messages.
    """
    report = Sinks(sinks) if sinks else None
    return Engine(
        fleet,
        options,
        Sinks((log,) if report is None else (log, report)),
        report=report,
        clock=clock,
        wall_us=wall_us,
        draw=random.random if rng is None else rng.random,
        new_token=system_tokens().__next__
        if rng is None
        else lambda: b"%032x" % rng.getrandbits(128),
        run_id=run_id,
        manager_id=secrets.token_hex(8).encode() if rng is None else run_id[:16],
    )


def refuse_duplicates(nodes: Iterable[Node]) -> None:
    """Raise `ConfigurationError` if two nodes turned out to be the same server."""
    for node in nodes:
        state = node.state()
        if state.state == "refused" and SAME_SERVER in state.reason:
            raise ConfigurationError(
                f"{state.reason}; name each server once, or a quorum has no meaning"
            )
