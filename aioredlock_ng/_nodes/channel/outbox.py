"""What leaves in one tick leaves in one write per connection (the first hand-over in its own), packed once for all nodes."""

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
    """A channel, as far as the outbox needs one."""

    def ask(self, sink: Sink) -> None:
        """Queue a command."""

    def take(self, packed: list[bytes], sinks: list[Sink]) -> bool:
        """Queue several; True when they are the first in this tick."""

    def write(self, pieces: list[bytes], sinks: Iterable[Sink], now: float) -> None:
        """Write commands at once; its own run_id belongs between the pieces."""

    def flush(self, now: float) -> None:
        """Write what was queued for it alone."""


class Outbox:
    """Shared by the channels of one manager.

    Commands for all live channels are collected here; commands for one channel are collected there. Each channel sees
    both kinds in the order in which they were asked: before a channel takes one of its own, what was collected for all
    is handed to all.
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
        """From now on `channel` gets what goes to all."""
        self.spill()
        self._live.append(channel)

    def leave(self, channel: Outlet) -> None:
        """`channel` gets no more than what was asked before."""
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
            # Neither has a form, so nothing is ever put between the two.
            self._sinks.append(Caching(sink.started))
        self._sinks.append(sink)
        if not self._scheduled:
            self._schedule()

    def has_own(self, channel: Outlet) -> None:
        """`channel` is about to queue a command of its own, its first in this tick."""
        self.spill()
        self._single.append(channel)
        if not self._scheduled:
            self._schedule()

    def pieces(self, packed: list[bytes]) -> list[bytes]:
        """Commands as one, in pieces between which each channel puts its own run_id: found once, not once per channel."""
        data = packed[0] if len(packed) == 1 else b"".join(packed)
        return data.split(self.run_id) if self.run_id else [data]

    def spill(self) -> None:
        """Hand what was collected for all to each channel, as if it had been asked one by one."""
        if self._sinks:
            requests, packed = self._collected()
            for channel in self._live:
                if channel.take(packed, requests):
                    self._single.append(channel)

    def hurry(self) -> None:
        """Write what was collected for all now, once per tick: the loop's next turn costs a tenth of a hand-over.

        Once only, for what comes behind it in this tick still leaves in one write.
        """
        if self._sinks and not self._hurried:
            self._hurried = True
            self._write()

    def _collected(self) -> tuple[list[Sink], list[bytes]]:
        """What is to go to all, and its bytes; it counts as gone."""
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
            now = self.clock()
            for channel in single:
                channel.flush(now)

    def _write(self) -> None:
        now = self.clock()
        requests, packed = self._collected()
        pieces = self.pieces(packed)
        # A copy: a write that fails takes its channel out.
        for channel in tuple(self._live):
            channel.write(pieces, requests, now)
