"""A TCP relay before each node, in a process of its own, with the network's faults; it never looks
at what it carries.

Lines on stdin: `{"node": 0, "op": "cut" | "refuse" | "accept" | "stall" | "flow" | "delay", "way":
…, "seconds": …}`, each answered by a line. The relay of tests.support.proxy has a task per
direction of each connection; this one has to carry thousands of messages a second and is callbacks
only.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .history import History, now

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]

TO_SERVER, TO_CLIENT = "to_server", "to_client"
_TICK_SECONDS: Final = 0.05
_STALL_SECONDS: Final = 0.1


class Way:
    """One direction of all connections with one node."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.stalled = False
        self.pipes: set[Pipe] = set()

    def flow(self) -> None:
        """Deliver what was held back, in order, as a network does that retransmits."""
        self.stalled = False
        for pipe in list(self.pipes):
            pipe.pump()


class Pipe:
    """One direction of one connection; what came is written in its order, late or not."""

    def __init__(self, way: Way, sink: asyncio.Transport) -> None:
        self._way = way
        self._sink = sink
        self._held: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        way.pipes.add(self)

    def carry(self, data: bytes) -> None:
        """Write, or hold back."""
        way = self._way
        if not self._held and not way.stalled and not way.delay:
            self._sink.write(data)
            return
        self._held.append((asyncio.get_running_loop().time() + way.delay, data))
        self.pump()

    def pump(self) -> None:
        """Write what is due."""
        if self._way.stalled:
            return
        loop = asyncio.get_running_loop()
        while self._held and self._held[0][0] <= loop.time():
            self._sink.write(self._held.popleft()[1])
        # A timer may come a moment early: then what it came for is not due yet, and needs the next
        # one.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held:
            self._timer = loop.call_at(self._held[0][0], self.pump)

    def close(self) -> None:
        """The connection is over."""
        self._way.pipes.discard(self)
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._sink.abort()


class Link:
    """One node's relay."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self.ways = {TO_SERVER: Way(), TO_CLIENT: Way()}
        self.ends: set[_End] = set()
        self.port = 0
        self._server: asyncio.Server | None = None

    async def accept(self) -> None:
        """Listen, on the same port as before."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: _Front(self), "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Listen no more, and reset what is open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        """Reset every connection."""
        for end in list(self.ends):
            end.drop()

    async def connect(self, front: _Front) -> None:
        """Connect to the node for a client; its connection is reset where that is not possible."""
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: _Back(self, front), *self._address
            )
        except OSError:
            front.drop()


class _End(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None
        self._pipe: Pipe | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._link.ends.add(self)

    def joined(self, other: _End, way: str) -> None:
        """The other end is there."""
        assert other.transport is not None
        self.other = other
        self._pipe = Pipe(self._link.ways[way], other.transport)
        for data in self._early:
            self._pipe.carry(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self._pipe is None:
            self._early.append(data)
        else:
            self._pipe.carry(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.drop()

    def drop(self) -> None:
        """Reset both ends."""
        self._link.ends.discard(self)
        if self.transport is not None:
            self.transport.abort()
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()
        other, self.other = self.other, None
        if other is not None:
            other.drop()


class _Front(_End):
    """The client's end."""

    _connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.get_running_loop().create_task(self._link.connect(self))


class _Back(_End):
    """The node's end."""

    def __init__(self, link: Link, front: _Front) -> None:
        super().__init__(link)
        self._front = front

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self._front.transport is not None
        if self._front.transport.is_closing():
            self.drop()
            return
        self.joined(self._front, TO_CLIENT)
        self._front.joined(self, TO_SERVER)


async def _serve(
    addresses: list[tuple[str, int]], say: Callable[[object], None], history: History
) -> None:
    links = [Link(host, port) for host, port in addresses]
    for link in links:
        await link.accept()
    watching = asyncio.create_task(_watch(history))
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    say([link.port for link in links])
    while line := await lines.readline():
        order: dict[str, Any] = json.loads(line)
        link, op = links[order["node"]], order["op"]
        ways = [link.ways[way] for way in ([order["way"]] if order.get("way") else link.ways)]
        if op == "accept":
            await link.accept()
        elif op in {"cut", "refuse"}:
            getattr(link, op)()
        else:
            for way in ways:
                if op == "flow":
                    way.flow()
                elif op == "stall":
                    way.stalled = True
                else:
                    way.delay = order["seconds"]
        say("done")
    watching.cancel()


async def _watch(history: History) -> None:
    """Write down when the relay stood still: all nodes were late then, and no fault of theirs."""
    before = time.monotonic()
    while True:
        await asyncio.sleep(_TICK_SECONDS)
        after = time.monotonic()
        if after - before > _TICK_SECONDS + _STALL_SECONDS:
            history.write("stall", s=now() - int((after - before) * 1e9))
        before = after


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(task: dict[str, Any]) -> None:
    """Relay until stdin ends."""
    history = History(Path(task["history"]))
    history.write("start", p="relay")
    asyncio.run(_serve([(host, port) for host, port in task["addresses"]], _say, history))
