"""Clients without a real connection are refused at once, with the way out, instead of being waited
for.
"""

from __future__ import annotations

import asyncio
import types
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import Connection

from aioredlock_ng import ConfigurationError, QuorumUnreachable, Redlock
from aioredlock_ng._nodes import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.node_set import NodeSet


class FakeWriter:
    """As fakeredis has it."""

    def close(self) -> None:
        pass


class NoTransport(Connection):
    """Says that it is open, and has nothing behind it."""

    async def _connect(self) -> None:
        self._reader = self._writer = FakeWriter()  # type: ignore[assignment]


class NoStreams(Connection):
    """Connects in a way of its own, as a mock does."""

    async def connect(self) -> None:
        pass


def of_fakeredis(base: type[Any], name: str) -> Any:
    """A class as that package defines it, which is not installed here."""
    return types.new_class(
        name, (base,), exec_body=lambda body: body.update(__module__="fakeredis._clients._async")
    )


FakeConnection = of_fakeredis(Connection, "FakeAsyncRedisConnection")
Derived = types.new_class("Derived", (FakeConnection,))

CLIENTS = {
    "a client": lambda: of_fakeredis(Redis, "FakeRedis")(),
    "a client with the server of a pool": lambda: Redis(
        connection_pool=ConnectionPool(connection_class=FakeConnection)
    ),
    "a client of a derived connection": lambda: Redis(
        connection_pool=ConnectionPool(connection_class=Derived)
    ),
    "a pool": lambda: Redis(connection_pool=of_fakeredis(ConnectionPool, "FakePool")()),
    "a synchronous client": lambda: of_fakeredis(redis.Redis, "FakeStrictRedis")(),
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_fakeredis_client_is_refused_at_construction_with_the_way_out(kind: str) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"fakeredis.*aioredlock_ng\.testing\.MemoryNodes.*fixture `redlock`",
    ):
        Redlock([CLIENTS[kind]()])


@pytest.mark.parametrize("kind", [NoTransport, NoStreams])
async def test_a_connection_that_offers_no_transport_is_refused_for_good(
    kind: type[Connection], one_node: NodeSet
) -> None:
    client = Redis(connection_pool=ConnectionPool.from_url(one_node.urls[0], connection_class=kind))
    async with Redlock([client]) as redlock:
        assert redlock.nodes[0].state == "refused"
        assert f"{kind.__name__} offers no transport" in redlock.nodes[0].reason
        # The caller sets no timeout, and is told at once.
        with pytest.raises(QuorumUnreachable, match="offers no transport"):
            await asyncio.wait_for(redlock.lock("order").acquire(), 30)


async def test_a_cancellation_is_not_hidden_by_a_connection_that_offers_no_transport(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The task that connects would never end."""
    closing = asyncio.Event()

    @asynccontextmanager
    async def hanging(_pool: object, _within: float) -> AsyncIterator[dict[str, Any]]:
        """Hang at the end, as the connections to Sentinels may."""
        try:
            yield {}
        finally:
            closing.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(connect, "asked_anew", hanging)
    client = Redis(connection_pool=ConnectionPool(connection_class=NoTransport))
    connecting = asyncio.create_task(connect.Connector(client).connect(60.0))
    await closing.wait()
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
