"""Provide plain blocking connections to one server.

They need little CPU time in the client, and share no code with the library's connections.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import hiredis

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

__all__ = ["Wire", "pack"]

# hiredis ships stubs that know only tuples of one word, and only bytes to feed.
_Pack = Callable[[tuple[Any, ...]], bytes]
pack: _Pack = hiredis.pack_command  # type: ignore[assignment,unused-ignore]

_PATIENCE = 30.0


class Wire:
    """One connection with RESP3 and client tracking, as the library sets it up.

    The server does not notify the connection of its own changes.

    Args:
        port: Port of a server on loopback.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Pushes are not replies. Their type tells them apart.
        self._reader = hiredis.Reader()
        self.pushes = 0
        self.send(pack(("HELLO", "3")) + pack(("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP")))
        self.receive(2)

    def send(self, data: bytes) -> None:
        """Write all data."""
        self._socket.sendall(data)

    def receive(self, count: int) -> list[Any]:
        """Wait for `count` replies. Pushes are counted and not returned.

        Raises:
            RuntimeError: The server refused a command.
            ConnectionResetError: The server closed the connection.
        """
        replies: list[Any] = []
        while len(replies) < count:
            reply = self._reader.gets()
            if reply is False:
                data = self._socket.recv(1 << 16)
                if not data:
                    raise ConnectionResetError("the server hung up")
                self._reader.feed(data)
            elif isinstance(reply, hiredis.PushNotification):
                self.pushes += 1
            elif isinstance(reply, Exception):
                raise RuntimeError(str(reply))
            else:
                replies.append(reply)
        return replies

    def ask(self, *words: str | bytes | int) -> Any:
        """Send one command and return its reply."""
        self.send(pack(words))
        return self.receive(1)[0]

    def ask_all(self, commands: Sequence[bytes], at_once: int) -> list[Any]:
        """Send packed commands, `at_once` of them in one write.

        Each write waits for the replies to the write before.
        """
        replies = []
        for start in range(0, len(commands), at_once):
            part = commands[start : start + at_once]
            self.send(b"".join(part))
            replies += self.receive(len(part))
        return replies

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
