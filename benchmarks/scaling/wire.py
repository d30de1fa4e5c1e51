"""Plain blocking connections to one server, for a load that costs the client little; nothing of the library's channel."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import hiredis

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

__all__ = ["Wire", "pack"]

# hiredis ships stubs that know only tuples of one word, and only bytes to feed.
pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment,unused-ignore]

_PATIENCE = 30.0


class Wire:
    """One connection, greeted as the library greets: RESP3 and client tracking without our own changes.

    Args:
        port: Of a server on loopback.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Pushes count as replies to nobody: they are told apart by their type.
        self._reader = hiredis.Reader()
        self.pushes = 0
        self.send(pack(("HELLO", "3")) + pack(("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP")))
        self.receive(2)

    def send(self, data: bytes) -> None:
        """Write it all."""
        self._socket.sendall(data)

    def receive(self, count: int) -> list[Any]:
        """Wait for so many replies; pushes are counted and not returned.

        Raises:
            RuntimeError: The server refused something.
            ConnectionResetError: It hung up.
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
        """Send one command and wait for its reply."""
        self.send(pack(words))
        return self.receive(1)[0]

    def ask_all(self, commands: Sequence[bytes], at_once: int) -> list[Any]:
        """Send packed commands, so many in one write, each write after the replies to the one before."""
        replies = []
        for start in range(0, len(commands), at_once):
            part = commands[start : start + at_once]
            self.send(b"".join(part))
            replies += self.receive(len(part))
        return replies

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
