"""The sending half of a channel: queueing, writing, noticing a silent server, and closing.

A channel never times a request out, and stays open when a caller gives up. Reconnecting is the task
of `_nodes/node.py`. The server executes commands in the order in which they were queued. So a
release that is queued after an acquire is executed after the acquire, even if the server reads both
late.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from typing import TYPE_CHECKING

from aioredlock_ng._core.votes import Dropped, Unsent
from aioredlock_ng._nodes.channel.sinks import PROBE, Probe, asking
from aioredlock_ng._nodes.channel.tracking import CACHING, Caching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioredlock_ng._nodes.channel.outbox import Outbox
    from aioredlock_ng._nodes.port import Sink
    from aioredlock_ng._scripts import Request

__all__ = ["Sender"]

MAX_PENDING = 65_536
"""Number of unanswered requests above which a server counts as silent.

A backlog of this size takes about 10 MB."""


class Sender(asyncio.BufferedProtocol):
    """The sending half of a `Channel`. The docstring of `Channel` describes the arguments.

    Attributes:
        silent: True while the server does not answer in time.
        run_id: The server's run id, which is sent in place of the outbox's placeholder.
    """

    def __init__(
        self,
        index: int,
        outbox: Outbox,
        patience: float,
        on_close: Callable[[str, list[Request]], None],
        on_silent: Callable[[bool], None],
    ) -> None:
        self._index = index
        self._outbox = outbox
        self._patience = patience
        self._on_close = on_close
        self._on_silent = on_silent
        self._waiting: deque[Sink] = deque()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._check_is_due = self._probing = False
        self._drained: asyncio.Future[None] | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.silent = False
        # Until the handshake has read the server's run id, the placeholder is sent unchanged.
        self.run_id = outbox.run_id

    def _open(self, transport: asyncio.Transport, keep: object) -> None:
        self._transport = self._opened = transport
        self._keep = keep
        transport.set_protocol(self)

    @property
    def pending(self) -> int:
        """Number of requests that are not answered yet."""
        return len(self._waiting)

    @property
    def oldest(self) -> Sink | None:
        """The sink that has waited longest; None if no sink waits.

        While the server does not answer, this stays the same sink.
        """
        return self._waiting[0] if self._waiting else None

    async def drain(self, within: float) -> None:
        """Wait until all requests are answered, for at most `within` seconds.

        If the server is silent, return immediately.
        """
        self._outbox.spill()
        if self._waiting and not self.silent and self._transport is not None:
            self._drained = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._drained

    async def gone(self, within: float) -> None:
        """After `close(goodbye=True)`, wait until the transport closes, at most `within` seconds.

        A transport that is still open after this time is aborted. The event loop closes an aborted
        transport some ticks later. The call waits for this, too, but at most a second. After this
        call, the caller may close the event loop.
        """
        try:
            if not self.silent:
                await asyncio.wait([self._lost], timeout=within)
        finally:
            if not self._lost.done():
                self._opened.abort()
        await asyncio.wait([self._lost], timeout=1.0)

    def disown(self) -> None:
        """In a forked child, replace the parent's socket by a socket whose peer is closed.

        Closing the parent's socket is not enough. The child may continue the event loop in which
        the socket is registered. The loop would then read the parent's replies.
        """
        sock = self._opened.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            end, other = socket.socketpair()
            with end, other:
                os.dup2(end.fileno(), sock.fileno(), inheritable=False)

    def ask(self, sink: Sink) -> None:
        if sink.command.tracked:
            self.ask_raw(CACHING.packed, Caching(sink.started))
        self.ask_raw(sink.command.packed, sink)

    def ask_raw(self, packed: bytes, sink: Sink) -> None:
        if self._transport is None:
            sink.deliver(self._index, Unsent("connection closed"))
            return
        if not self._out:
            self._outbox.has_own(self)
        self._out.append(packed)
        self._waiting.append(sink)

    def take(self, packed: list[bytes], sinks: list[Sink]) -> bool:
        first = not self._out
        self._out += packed
        self._waiting += sinks
        return first

    def flush(self, now: float) -> None:
        out, self._out = self._out, []
        if out:
            self.write(self._outbox.pieces(out), (), now)

    def write(self, pieces: list[bytes], sinks: Iterable[Sink], now: float) -> None:
        """Write commands, and schedule a check if a reply is overdue or the backlog is full."""
        if self._transport is None:
            return
        self._waiting += sinks
        if not self._waiting:
            # The server sent one reply too many. This reply was matched to the last request, which
            # was not written yet. So no sink waits for the reply to that request any more.
            self.close("not the Redis protocol: an answer that nobody asked for")
            return
        # All nodes get the same bytes, except for the run id. The run id names the server process
        # to which this connection was made, and a node may vote only as that process.
        self._transport.write(pieces[0] if len(pieces) == 1 else self.run_id.join(pieces))
        oldest = self._waiting[0]
        overdue = now - oldest.started > self._patience or len(self._waiting) > MAX_PENDING
        if overdue and not self._check_is_due and not self.silent:
            self._check_is_due = True
            self._outbox.loop.call_later(self._patience, self._check, oldest)

    def _check(self, oldest: Sink) -> None:
        """Declare the server silent if the sink `oldest` still waits, or the backlog is too long.

        A reply may be overdue because this process stalled. So this check runs some time later,
        when the process has had time to read. A server whose backlog is still too long counts as
        silent, even if this process is the cause.
        """
        self._check_is_due = False
        waiting = self._waiting
        if (
            self._transport is not None
            and waiting
            and (waiting[0] is oldest or len(waiting) > MAX_PENDING)
        ):
            self.silent = True
            self._on_silent(True)

    def _probe(self) -> None:
        """Send a request whose timely reply shows that a silent server has recovered.

        The reply to this request comes after all overdue replies. One overdue reply would not show
        that the server has caught up.
        """
        if not self._probing and self._transport is not None:
            self._probing = True
            self.ask_raw(PROBE, Probe(self._outbox.clock(), self._probed))

    def _probed(self, asked_at: float) -> None:
        self._probing = False
        if self._transport is not None and self._outbox.clock() - asked_at <= self._patience:
            self.silent = False
            self._on_silent(False)

    def eof_received(self) -> bool:
        self.close("closed by the server")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._lost.done():
            self._lost.set_result(None)
        self.close(f"connection lost: {exc}" if exc else "connection lost")

    def close(self, reason: str, *, goodbye: bool = False) -> None:
        """Close the channel, and deliver a `Dropped` to every sink that still waits. Idempotent.

        With `goodbye`, the transport is closed in an orderly way, unless it has unsent bytes. An
        orderly end of TLS needs a round trip, so await `gone` afterwards.
        """
        if self._transport is None:
            return
        self._outbox.leave(self)
        transport, self._transport = self._transport, None
        if self._out:
            transport.write(self.run_id.join(self._outbox.pieces(self._out)))
            self._out.clear()
        # A regular close waits until the unsent bytes are written, for ever if the server hangs. So
        # a transport with unsent bytes is aborted.
        if goodbye and not transport.get_write_buffer_size():
            transport.close()
        else:
            transport.abort()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        waiting, self._waiting = self._waiting, deque()
        dropped = Dropped(reason)
        asked = [own for sink in waiting for own in asking(sink)]
        self._on_close(
            reason, [sink.command for sink in asked if sink.command.owed_until is not None]
        )
        for sink in waiting:
            sink.deliver(self._index, dropped)
