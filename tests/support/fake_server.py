"""A server on loopback that gives the answers of a test.

Tests use it for answers that no real server gives, or only servers that are not available.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha1
from typing import TYPE_CHECKING, Any

import hiredis

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Answer", "FakeServer", "bulk"]

Answer = bytes | Callable[[list[bytes]], bytes]
"""A reply in wire format, or a function that makes the reply from the words of the command."""


def bulk(text: str) -> bytes:
    """Return a text as a bulk string in wire format."""
    data = text.encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


class FakeServer:
    """Answers the handshake like a Redis server. Another command gets an error, unless the test has
    an answer for it.

    Args:
        version: The version in the answer to INFO.
        **answers: Answers by the name of the command in lower case.

    Attributes:
        asked: The words of every command so far.
    """

    def __init__(self, version: str = "7.0.15", **answers: Answer) -> None:
        run_id = sha1(str(id(self)).encode(), usedforsecurity=False).hexdigest()
        self.asked: list[list[bytes]] = []
        self._answers: dict[str, Answer] = {
            "hello": b"%2\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n",
            "info": bulk(f"redis_version:{version}\r\nrun_id:{run_id}\r\nrole:master\r\n"),
            "auth": b"+OK\r\n",
            "client": b"+OK\r\n",
            "eval": b"*0\r\n",
            "evalsha": b"*0\r\n",
            "script": lambda words: bulk(sha1(words[2], usedforsecurity=False).hexdigest()),
            "time": b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n",
            **answers,
        }
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def port(self) -> int:
        """The TCP port of the server."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The URL of the server, without credentials."""
        return f"redis://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        commands: Any = hiredis.Reader()
        try:
            while data := await reader.read(65_536):
                commands.feed(data)
                while (words := commands.gets()) is not False:
                    writer.write(self._answer(words))
        except OSError:
            pass
        finally:
            writer.close()

    def _answer(self, words: list[bytes]) -> bytes:
        self.asked.append(words)
        answer = self._answers.get(words[0].decode().lower(), b"-ERR unknown command\r\n")
        return answer if isinstance(answer, bytes) else answer(words)
