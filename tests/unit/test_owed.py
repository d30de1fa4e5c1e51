"""The releases that a server has not executed yet are sent on the next connection, and once more.

A server that wakes up may execute an acquire of an old connection after its release, which came on
the new connection. So one release is not enough.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aioredlock_ng._nodes.owed import PAY_TWICE, OwedReleases
from aioredlock_ng._scripts import Request

pytestmark = pytest.mark.virtual_time

RELEASE = Request.of("DEL", b"a")


class Server:
    """Records the releases that a node sends to it, and the connection of each."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.got: list[tuple[object, list[Request]]] = []
        loop = asyncio.get_running_loop()
        outbox: Any = SimpleNamespace(loop=loop, clock=loop.time)
        self.owed = OwedReleases(outbox, lambda: self.connection, self._pay)

    def connect(self) -> object:
        self.connection = connection = object()
        self.owed.connected(self.connection)
        return connection

    def _pay(self, connection: object, releases: dict[bytes, Request]) -> None:
        self.got.append((connection, list(releases.values())))


async def test_an_outstanding_release_is_sent_at_the_reconnect_and_once_more_later() -> None:
    server = Server()
    server.owed.add(RELEASE)
    first = server.connect()
    assert server.got == [(first, [RELEASE])]
    await asyncio.sleep(PAY_TWICE - 0.01)
    assert len(server.got) == 1
    await asyncio.sleep(0.02)
    assert server.got == [(first, [RELEASE])] * 2
    await asyncio.sleep(10 * PAY_TWICE)
    assert len(server.got) == 2
    assert len(server.owed) == 0


async def test_a_release_that_cannot_be_sent_once_more_is_sent_at_the_next_reconnect() -> None:
    server = Server()
    server.owed.add(RELEASE)
    first = server.connect()
    server.connection = None
    await asyncio.sleep(PAY_TWICE + 0.01)
    assert len(server.owed) == 1
    second = server.connect()
    assert server.got == [(first, [RELEASE]), (second, [RELEASE])]
