"""Send single commands to a server over its Unix socket, without the library's connections."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ServerRefused", "command", "info"]


class ServerRefused(RuntimeError):
    """The server answered with an error. The message contains the server's words."""


def command(path: Path, *args: str, password: str | None = None, timeout: float = 5.0) -> bytes:
    """Send one command over a new connection, and return the payload of the reply.

    The reply must be a simple string, an integer or a bulk string. Connecting and each read may
    take up to `timeout` seconds.

    Raises:
        ServerRefused: The server answered with an error.
        OSError: The server is not reachable, closed the connection, or gave no answer in time
            (`TimeoutError`).
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        connection.connect(str(path))
        with connection.makefile("rb") as replies:
            if password is not None:
                connection.sendall(_packed(("AUTH", password)))
                _read_reply(replies)
            connection.sendall(_packed(args))
            return _read_reply(replies)


def info(path: Path, *, password: str | None = None) -> dict[str, str]:
    """Return the server's INFO as a dictionary of its `name:value` lines."""
    lines = command(path, "INFO", password=password).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _packed(parts: tuple[str, ...]) -> bytes:
    encoded = [part.encode() for part in parts]
    return b"*%d\r\n" % len(encoded) + b"".join(
        b"$%d\r\n%s\r\n" % (len(part), part) for part in encoded
    )


def _read_reply(replies: BinaryIO) -> bytes:
    line = replies.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError("the server closed the connection before it answered")
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        raise ServerRefused(rest.decode(errors="replace"))
    if kind != b"$":
        return rest
    length = int(rest)
    return b"" if length < 0 else replies.read(length + 2)[:-2]
