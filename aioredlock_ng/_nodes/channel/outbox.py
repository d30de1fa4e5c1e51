"""The requests of one tick of the event loop, packed once for all nodes.

Each connection gets these requests in one write at the end of the tick, or at a call of
`Outbox.hurry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._nodes.channel.joint import joined
from aioredlock_ng._nodes.channel.tracking import Caching

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from aioredlock_ng._nodes.port import Sink

__all__ = ["Outbox", "Outlet"]


class Outlet(Protocol):
    """The methods of a channel that the outbox uses."""

    def ask(self, sink: Sink) -> None:
        """Queue a command for this channel alone."""

    def take(self, packed: list[bytes], sinks: list[Sink]) -> bool:
        """Queue several commands. Return True if no command was in the queue before."""

    def write(self, pieces: list[bytes], sinks: Iterable[Sink], now: float) -> None:
        """Join the pieces with the channel's run id, and write them immediately."""

    def flush(self, now: float) -> None:
        """Write the commands that were queued for this channel alone."""


class Outbox:
    """Collects the commands for all live channels of one manager until the end of the tick.

    A command for a single channel waits in that channel. Before a channel queues a command of this
    kind, the outbox moves its collected commands to all channels. So each channel sends all
    commands in the order in which they were queued.

    The argument `run_id` is a placeholder in commands. Each channel replaces the placeholder by the
    run id of its server.
    """

    __slots__ = ("_hurried", "_live", "_scheduled", "_single", "_sinks", "clock", "loop", "run_id")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float], run_id: bytes = b""
    ) -> None:
        self.loop = loop
        self.run_id = run_id
        self.clock = clock
        self._live: list[Outlet] = []
        self._single: list[Outlet] = []
        self._sinks: list[Sink] = []
        self._scheduled = False
        self._hurried = False

    def join(self, channel: Outlet) -> None:
        """Add a channel, which gets the commands for all channels from now on."""
        self.spill()
        self._live.append(channel)

    def leave(self, channel: Outlet) -> None:
        """Remove a channel, after it has got the commands that were queued before."""
        if channel in self._live:
            self.spill()
            self._live.remove(channel)

    def ask_all(self, sink: Sink) -> None:
        """Queue `sink.command` on every live channel."""
        if self._single:
            for channel in self._live:
                channel.ask(sink)
            return
        if sink.command.tracked:
            # CLIENT CACHING must come directly before the tracked command. Only commands with a
            # `Form` are merged, and these two have none, so they stay neighbours.
            self._sinks.append(Caching(sink.started))
        self._sinks.append(sink)
        if not self._scheduled:
            self._schedule()

    def has_own(self, channel: Outlet) -> None:
        """Give the collected commands to every channel, before `channel` queues a command alone."""
        self.spill()
        self._single.append(channel)
        if not self._scheduled:
            self._schedule()

    def pieces(self, packed: list[bytes]) -> list[bytes]:
        """Join commands, and split the bytes at the placeholder for the run id."""
        data = packed[0] if len(packed) == 1 else b"".join(packed)
        return data.split(self.run_id) if self.run_id else [data]

    def spill(self) -> None:
        """Move the commands for all channels into the queue of each channel."""
        if self._sinks:
            requests, packed = self._collected()
            for channel in self._live:
                if channel.take(packed, requests):
                    self._single.append(channel)

    def hurry(self) -> None:
        """Write the commands for all channels now, but only once per tick.

        Waiting for the end of the tick would make a hand-over a tenth slower. Later commands of the
        tick are written together at its end.
        """
        if self._sinks and not self._hurried:
            self._hurried = True
            self._write()

    def _collected(self) -> tuple[list[Sink], list[bytes]]:
        """Empty the outbox. Return the merged requests, and the packed bytes of each request."""
        sinks, self._sinks = self._sinks, []
        requests = joined(sinks)
        return requests, [request.command.packed for request in requests]

    def _schedule(self) -> None:
        self._scheduled = True
        self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        self._hurried = False
        if self._sinks:
            self._write()
        single, self._single = self._single, []
        if single:
            # A channel may close in `flush`, and a listener may then ask all nodes. These commands
            # must not overtake the commands that still wait in the other channels.
            self._hurried = True
            now = self.clock()
            for channel in single:
                channel.flush(now)
            self._hurried = False

    def _write(self) -> None:
        now = self.clock()
        requests, packed = self._collected()
        pieces = self.pieces(packed)
        # The loop needs a copy, because a failed write removes its channel from the list.
        for channel in tuple(self._live):
            channel.write(pieces, requests, now)
