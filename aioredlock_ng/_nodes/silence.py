"""What to do with a connection on which the server does not answer: find out whether it is dead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioredlock_ng._nodes.connect import ConnectFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioredlock_ng._nodes.channel import Channel
    from aioredlock_ng._nodes.connect import Wire

__all__ = ["SUSPECT_AFTER", "close_if_dead"]

SUSPECT_AFTER = 2
"""Node timeouts without a reply after which a node is checked, and after as many more is suspect.
A hung node costs a round nothing, because the others decide it. The limit only bounds the backlog."""

PROBE_EVERY = 10.0
"""Seconds between attempts to reach a silent server on another connection."""


async def close_if_dead(
    current: Callable[[], Channel | None],
    connect: Callable[[], Awaitable[Wire]],
    patience: float,
) -> None:
    """Close a silent connection once the server answers on another one. Return if it is not silent any more.

    A server that answers on another connection is well, so the silent connection is dead. A hung
    server answers on none, and keeps its connection. It must execute in order what was queued there.

    Args:
        current: Returns the node's connection, or None.
        connect: Makes the other connection.
        patience: Seconds in which a server that has woken up answers on the silent connection, too.
    """
    while True:
        await asyncio.sleep(PROBE_EVERY)
        channel = current()
        if channel is None or not channel.silent:
            return
        oldest = channel.oldest
        try:
            wire = await connect()
        except ConnectFailed:
            continue
        wire.transport.abort()
        # The server may have woken up meanwhile. Then it answers on the silent connection soon.
        await asyncio.sleep(patience)
        if channel is current() and channel.oldest is oldest:
            channel.close("silent, though the server answers on a new connection")
            return
