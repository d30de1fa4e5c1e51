"""A proxy that forwards RESP3, and replaces the replies that a test chooses."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import hiredis

from aioredlock_ng._scripts.catalogue import SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

__all__ = ["TRUTH", "Liar", "encoded"]

TRUTH: Any = object()
"""The value that a test's `reply` returns to forward the server's own reply."""

_NAMES = {script.sha: script.name for script in SCRIPTS} | {
    script.source: script.name for script in SCRIPTS
}


class _ServerError(Exception):
    """An error reply of the server."""


class Liar:
    """A proxy in front of one server, with some false replies.

    Use `async with Liar(server.url, reply) as liar:`, and give `liar.url` to the manager.

    Args:
        url: URL of the real server.
        reply: Called with the name of a script, or of another command in lower case, and with the
            true reply. Returns `TRUTH` or the false reply.

    Attributes:
        asked: The names of all commands so far.
    """

    def __init__(self, url: str, reply: Callable[[str, Any], Any]) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self.reply = reply
        self.asked: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError):
            there, to_server = await asyncio.open_connection(self._host, self._port)
            names: deque[str] = deque()
            back = asyncio.create_task(self._answer(there, writer, names))
            self._tasks.add(back)
            try:
                await self._forward(reader, to_server, names)
            finally:
                back.cancel()
                writer.close()
                to_server.close()

    async def _forward(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, names: deque[str]
    ) -> None:
        parser = hiredis.Reader()
        while data := await source.read(65536):
            parser.feed(data)
            while (words := parser.gets()) is not False:
                name = _NAMES.get(words[1]) if words[0] in (b"EVALSHA", b"EVAL") else None
                names.append(name or words[0].decode().lower())
                self.asked.append(names[-1])
            sink.write(data)
            await sink.drain()

    async def _answer(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, names: deque[str]
    ) -> None:
        parser = hiredis.Reader(replyError=_ServerError)
        while data := await source.read(65536):
            parser.feed(data)
            while (reply := parser.gets()) is not False:
                if type(reply) is hiredis.PushNotification:
                    # The server answers SUBSCRIBE with a push message in place of a reply.
                    if reply[0] == b"subscribe":
                        names.popleft()
                    sink.write(encoded(reply).replace(b"*", b">", 1))
                    continue
                chosen = self.reply(names.popleft(), reply)
                sink.write(encoded(reply if chosen is TRUTH else chosen))
            await sink.drain()


def encoded(value: Any) -> bytes:
    """Encode a Python value as RESP3."""
    match value:
        case None:
            return b"_\r\n"
        case bool():
            return b"#t\r\n" if value else b"#f\r\n"
        case int():
            return (b":%d\r\n" if abs(value) < 2**63 else b"(%d\r\n") % value
        case float():
            return b",%s\r\n" % repr(value).encode()
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
        case str():
            return b"+%b\r\n" % value.encode()
        case Exception():
            return b"-%b\r\n" % str(value).encode()
        case dict():
            return b"%%%d\r\n" % len(value) + b"".join(
                encoded(k) + encoded(v) for k, v in value.items()
            )
        case set() | frozenset():
            return b"~%d\r\n" % len(value) + b"".join(map(encoded, value))
        case list() | tuple():
            return b"*%d\r\n" % len(value) + b"".join(map(encoded, value))
    raise TypeError(type(value).__name__)
