"""Delay the answers of one node by a TCP proxy.

Usage: `slow_proxy.py HOST PORT MILLISECONDS`. The proxy prints the port on which it listens. It
ends when its stdin closes.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque


class _Late:
    """Write each piece of data to a transport after a fixed delay."""

    def __init__(self, transport: asyncio.Transport, delay: float) -> None:
        self._transport = transport
        self._delay = delay
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, bytes]] = deque()

    def write(self, data: bytes) -> None:
        if not self._delay:
            self._transport.write(data)
            return
        due = self._loop.time() + self._delay
        if not self._waiting:
            self._loop.call_at(due, self._write_due)
        self._waiting.append((due, data))

    def _write_due(self) -> None:
        now = self._loop.time()
        due = []
        while self._waiting and self._waiting[0][0] <= now:
            due.append(self._waiting.popleft()[1])
        if due and not self._transport.is_closing():
            self._transport.write(b"".join(due))
        if self._waiting:
            self._loop.call_at(self._waiting[0][0], self._write_due)


class _Server(asyncio.Protocol):
    """The connection to the node."""

    def __init__(self, client: asyncio.Transport, delay: float) -> None:
        self._client = client
        self._late = _Late(client, delay)

    def data_received(self, data: bytes) -> None:
        self._late.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._client.close()


class _Client(asyncio.Protocol):
    """The connection from the client.

    Data that arrives before the node is connected is kept.
    """

    def __init__(self, host: str, port: int, delay: float) -> None:
        self._address = (host, port)
        self._delay = delay
        self._early: list[bytes] = []
        self._server: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._client = transport
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        if self._server is None:
            self._early.append(data)
        else:
            self._server.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._server is not None:
            self._server.close()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._server, _ = await loop.create_connection(
            lambda: _Server(self._client, self._delay), *self._address
        )
        self._server.write(b"".join(self._early))


async def _serve(host: str, port: int, milliseconds: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _Client(host, port, milliseconds / 1000), "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
