"""The stock of the shop: a number on a Redis server of its own, accessed without a lock.

Two commands read and write the number. All contestants use the same bare connection, because their
client libraries differ.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import hiredis

if TYPE_CHECKING:
    from typing import Self

__all__ = ["KEY", "Till"]

KEY: Final = "stock"

_GET: Final = b"*2\r\n$3\r\nGET\r\n$5\r\nstock\r\n"


class Till(asyncio.Protocol):
    """One connection to the server of the stock. Use `connect` to make it."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(cls, url: str) -> Self:
        """Connect to `redis://host:port`.

        Raises:
            OSError: No server listens there.
        """
        parts = urlsplit(url)
        where = parts.hostname or "", parts.port or 6379
        _, till = await asyncio.get_running_loop().create_connection(cls, *where)
        return till

    async def left(self) -> int:
        """Return the number of items.

        Raises:
            ConnectionError: The server is gone.
            hiredis.HiredisError: The server refused the command.
        """
        return int(await self._ask(_GET) or 0)

    async def put(self, left: int) -> None:
        """Write the number of items that are left.

        Raises:
            ConnectionError: The server is gone.
            hiredis.HiredisError: The server refused the command.

        Safety: a cancelled call may have written the number.
        """
        text = b"%d" % left
        await self._ask(b"*3\r\n$3\r\nSET\r\n$5\r\nstock\r\n$%d\r\n%b\r\n" % (len(text), text))

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transport of uvloop is not a subclass of asyncio's class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            future = self._waiting.popleft()
            if future.done():
                continue
            if isinstance(reply, hiredis.HiredisError):
                future.set_exception(reply)
            else:
                future.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(ConnectionError("the server of the stock is gone"))

    def _ask(self, command: bytes) -> asyncio.Future[Any]:
        if self._transport is None:
            raise ConnectionError("the server of the stock is gone")
        future = self._loop.create_future()
        self._waiting.append(future)
        self._transport.write(command)
        return future
