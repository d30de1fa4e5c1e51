"""A test that shows whether a connection without replies is dead."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from aioredlock_ng._nodes.background import supervised
from aioredlock_ng._nodes.wire import ConnectFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioredlock_ng._nodes.channel import Channel
    from aioredlock_ng._nodes.wire import Wire
    from aioredlock_ng.events import EventSink

__all__ = ["SUSPECT_AFTER", "DeadConnectionProbe"]

SUSPECT_AFTER = 2
"""Number of node timeouts after which a missing reply is overdue.

Once a reply is overdue, the next request starts a second wait of the same length. If the reply is
still missing after the second wait, the node is suspect and gets only releases. A round does not
wait for the answer of a hung node. So this number does not slow rounds down, but limits how many
requests wait unanswered.
"""

PROBE_EVERY = 10.0
"""Seconds between attempts to reach a silent server on another connection."""


class DeadConnectionProbe:
    """A background task that closes a silent connection if it is dead.

    The task connects to the server once more. If the server answers on the new connection only, the
    silent connection is dead. A hung server answers on neither connection. Its silent connection is
    kept, because the server must still execute the queued commands in order.

    Args:
        address: The node's address, for the name of the task.
        current: Returns the node's connection, or None.
        connect: Makes another connection to the server.
    """

    def __init__(
        self,
        address: str,
        current: Callable[[], Channel | None],
        connect: Callable[[], Awaitable[Wire]],
    ) -> None:
        self._address = address
        self._current = current
        self._connect = connect
        self.task: asyncio.Task[None] | None = None

    def start(self, patience: float, emit: EventSink) -> None:
        """Start the task, unless it already runs.

        The task ends once the silent connection answers or is gone. A server that has woken up gets
        `patience` seconds to answer on the silent connection. After an unexpected exception, `emit`
        is called with a `TaskFailed`.
        """
        if self.task is None or self.task.done():
            work = partial(self._close_if_dead, patience)
            self.task = supervised(work, f"probe of {self._address}", emit)

    async def _close_if_dead(self, patience: float) -> None:
        while True:
            await asyncio.sleep(PROBE_EVERY)
            channel = self._current()
            if channel is None or not channel.silent:
                return
            oldest = channel.oldest
            try:
                wire = await self._connect()
            except ConnectFailed:
                continue
            wire.transport.abort()
            # A server that has woken up meanwhile gets some time to answer on the silent
            # connection.
            await asyncio.sleep(patience)
            if channel is self._current() and channel.oldest is oldest:
                channel.close("silent, though the server answers on a new connection")
                return
