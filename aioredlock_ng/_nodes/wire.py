"""The outcome of connecting: a connection for a channel, or the reason why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["ConnectFailed", "NoTransport", "Wire"]


class ConnectFailed(Exception):
    """There is no connection. The text gives the reason.

    Attributes:
        permanent: True if the server answers but must not vote, or if it can never be connected.
    """

    def __init__(self, reason: str, *, permanent: bool = False) -> None:
        super().__init__(reason)
        self.permanent = permanent


class NoTransport(ConnectFailed):
    """The connections of the given client have no transport that a channel could use."""


class Wire:
    """An authenticated connection, whose transport is free for a channel.

    Attributes:
        transport: The open transport, which no other code reads or writes.
        received: Bytes that were already read from the transport.
        resp3: True if the connection speaks RESP3.
        redact: Removes the node's credentials from a text.
    """

    __slots__ = ("_keep", "received", "redact", "resp3", "transport")

    def __init__(self, connection: Any, resp3: bool, redact: Callable[[str], str]) -> None:
        self.redact = redact
        writer, reader = connection._writer, connection._reader
        self.transport: asyncio.Transport = writer.transport
        self.received = bytes(reader._buffer)
        self.resp3 = resp3
        # A garbage-collected StreamWriter closes its transport, so the writer is kept here. A
        # garbage-collected Connection of redis-py closes its writer, so the writer is removed.
        self._keep = (writer, reader)
        connection._writer = connection._reader = None
