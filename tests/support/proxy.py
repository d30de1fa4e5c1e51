"""A TCP proxy in front of one node, which delays, stalls, cuts and refuses connections.

The proxy does not read the commands and replies.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from aioredlock_ng.testing import free_port

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Direction", "Proxy"]


class Direction:
    """One direction through the proxy, for all its connections.

    Attributes:
        delay: Seconds by which every byte is late. The order stays, and the rate has no limit.
        held: True if bytes have come since `stall`, and are held back.
    """

    def __init__(self) -> None:
        self.delay = 0.0
        self._open = asyncio.Event()
        self._open.set()
        self.held = False

    def stall(self) -> None:
        """Hold back all bytes from now on, like a network that drops every packet."""
        self._open.clear()

    def flow(self) -> None:
        """Deliver the bytes that were held back, and all later bytes."""
        self.held = False
        self._open.set()

    async def carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Copy the bytes of one connection until its source ends."""
        pending: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.create_task(self._deliver(pending, sink))
        try:
            while not delivering.done():
                data = await source.read(65536)
                self.held = self.held or not self._open.is_set()
                pending.put_nowait((asyncio.get_running_loop().time() + self.delay, data))
                if not data:
                    await delivering
        finally:
            delivering.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await delivering

    async def _deliver(
        self, pending: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter
    ) -> None:
        while True:
            due, data = await pending.get()
            late = due - asyncio.get_running_loop().time()
            if late > 0:
                await asyncio.sleep(late)
            await self._open.wait()
            if not data:
                return
            sink.write(data)
            await sink.drain()


class Proxy:
    """A proxy in front of one node.

    Use `async with Proxy(node.url) as proxy:`, and give `proxy.url` to the client that gets the
    faults.

    Attributes:
        to_server: The direction of requests.
        to_client: The direction of replies.
        accepted: Number of connections that were accepted so far.
    """

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.to_server = Direction()
        self.to_client = Direction()
        self.accepted = 0
        self._server: asyncio.Server | None = None
        self._port = 0
        self._carriers: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """The URL of the node, with the address of the proxy."""
        user = f"{self._parts.netloc.rpartition('@')[0]}@" if "@" in self._parts.netloc else ""
        return urlunsplit(self._parts._replace(netloc=f"{user}127.0.0.1:{self._port}"))

    @property
    def port(self) -> int:
        """The TCP port of the proxy. It stays the same over `refuse` and `accept`."""
        return self._port

    @property
    def connections(self) -> int:
        """Number of connections that are open now."""
        return len(self._carriers)

    def lead_to(self, url: str) -> None:
        """Connect to another server from now on, as if a host name had got another address."""
        self._parts = urlsplit(url)

    def delay(self, seconds: float) -> None:
        """Delay both directions by `seconds / 2`, which adds `seconds` to every round trip."""
        self.to_server.delay = self.to_client.delay = seconds / 2

    def stall(self) -> None:
        """Hold back the bytes of both directions. Connections stay open."""
        self.to_server.stall()
        self.to_client.stall()

    def flow(self) -> None:
        """Let the bytes of both directions flow again."""
        self.to_server.flow()
        self.to_client.flow()

    def cut(self) -> None:
        """Reset every open connection. New connections are accepted."""
        for writer in self._writers:
            writer.transport.abort()
        for task in self._carriers:
            task.cancel()

    async def refuse(self) -> None:
        """Reset every open connection, and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        await self._ended()

    async def accept(self) -> None:
        """Accept connections, always on the same port."""
        while self._server is None:
            port = self._port or free_port()
            try:
                self._server = await asyncio.start_server(self._accepted, "127.0.0.1", port)
            except OSError:
                if self._port:
                    raise
            else:
                self._port = port

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.refuse()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.get_running_loop().create_task(
            self._connection(reader, writer), name=f"proxy-{self.accepted}"
        )
        self._carriers.add(task)
        task.add_done_callback(self._carriers.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._parts.scheme == "unix":
                inner, outer = await asyncio.open_unix_connection(self._parts.path)
            else:
                inner, outer = await asyncio.open_connection(
                    self._parts.hostname, self._parts.port or 6379
                )
        except OSError:
            self._writers.discard(writer)
            writer.transport.abort()
            return
        self._writers.add(outer)
        ways = [
            asyncio.create_task(self.to_server.carry(reader, outer)),
            asyncio.create_task(self.to_client.carry(inner, writer)),
        ]
        try:
            # If one end closes, the other end is closed too. Redis has no half-open connections.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            # Both ends are closed before the first `await`, because a cut may cancel this task
            # there.
            for end in (writer, outer):
                end.close()
            await asyncio.gather(*ways, return_exceptions=True)
            self._writers -= {writer, outer}
            for end in (writer, outer):
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _ended(self) -> None:
        while self._carriers:
            await asyncio.wait(list(self._carriers))
