"""A node that Sentinels watch, while some of the Sentinels fail."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Connection, ConnectionPool, Redis, Sentinel

from aioredlock_ng import Redlock
from aioredlock_ng._nodes.connect import Connector
from aioredlock_ng._nodes.wire import ConnectFailed
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.sentinel import SentinelSet

OPTIONS: dict[str, Any] = {"node_timeout": 5.0, "connect_timeout": 8.0}
"""A Sentinel that does not answer is given up after a part of `connect_timeout`."""


@asynccontextmanager
async def primary_of(
    watched: SentinelSet, *before: tuple[str, int]
) -> AsyncIterator[tuple[Sentinel, Redis]]:
    """A client of the primary. The Sentinels at the addresses `before` are asked first."""
    sentinel = Sentinel([*before, watched.address])  # type: ignore[no-untyped-call]
    client = sentinel.master_for(watched.name)
    try:
        yield sentinel, client
    finally:
        for one in (client, *sentinel.sentinels):
            await one.aclose()


@pytest.mark.parametrize("listens", [True, False], ids=["hung", "dead"])
async def test_a_sentinel_that_does_not_answer_is_passed_over(
    sentinel_set: SentinelSet, listens: bool
) -> None:
    """The clients of a Sentinel retry for longer than `connect_timeout`, so the next Sentinel was
    never asked, and the node never got a connection.
    """
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        if listens:
            first.listen()
        async with (
            primary_of(sentinel_set, first.getsockname()) as (_, client),
            Redlock([client], **OPTIONS) as redlock,
        ):
            assert redlock.nodes[0].state != "down", redlock.nodes[0].reason
            assert redlock.nodes[0].run_id == sentinel_set.primary.info()["run_id"]


async def test_a_sentinel_is_asked_on_connections_of_the_managers_own_loop(
    sentinel_set: SentinelSet,
) -> None:
    """A connection of the user's client belongs to the loop that opened it."""
    async with primary_of(sentinel_set) as (sentinel, client):
        found = await sentinel.discover_master(sentinel_set.name)
        async with Redlock([client], thread=True, **OPTIONS) as redlock:
            assert redlock.nodes[0].state != "down", redlock.nodes[0].reason
        assert await sentinel.discover_master(sentinel_set.name) == found


async def test_a_lookup_leaves_no_connection_to_a_sentinel(sentinel_set: SentinelSet) -> None:
    async with primary_of(sentinel_set) as (sentinel, client):
        (asking,) = sentinel.sentinels
        before = {one["id"] for one in await asking.client_list()}

        async def only_those_before() -> bool:
            return {one["id"] for one in await asking.client_list()} == before

        async with Redlock([client], **OPTIONS) as redlock:
            assert redlock.nodes[0].state != "down", redlock.nodes[0].reason
            await eventually(only_those_before)


async def test_a_connection_is_closed_if_the_caller_is_cancelled_after_the_lookup(
    sentinel_set: SentinelSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Sentinels' connections are closed last, and a cancellation may come while they are."""
    async with primary_of(sentinel_set) as (_, client):
        connector = Connector(client)
        closing, close = asyncio.Event(), Redis.aclose

        async def hang(asking: Redis) -> None:
            closing.set()
            try:
                await asyncio.Event().wait()
            finally:
                await close(asking)

        monkeypatch.setattr(Redis, "aclose", hang)
        connecting = asyncio.create_task(connector.connect(60.0))
        await closing.wait()
        monkeypatch.undo()
        opened = sentinel_set.primary.info()["connected_clients"]
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        assert int(opened) > 1
        await eventually(
            lambda: int(sentinel_set.primary.info()["connected_clients"]) == int(opened) - 1
        )


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_an_end_of_the_connection_right_after_the_login_is_noticed_at_once(how: str) -> None:
    """The stream of redis-py took the end, so the channel waited for `connect_timeout`."""
    servers: list[asyncio.StreamWriter] = []

    class Slow(Connection):
        """Returns after the server has closed the connection, as a lookup of Sentinels may."""

        async def connect(self) -> None:
            await super().connect()
            sock = servers[0].get_extra_info("socket")
            if how == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            servers[0].transport.abort()
            await eventually(lambda: self._reader.at_eof() or self._writer.is_closing())

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        servers.append(writer)
        while data := await reader.read(65_536):
            hello = b"HELLO" in data
            writer.write(b"%1\r\n$5\r\nproto\r\n:3\r\n" if hello else b"+OK\r\n" * data.count(b"*"))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        pool = ConnectionPool(connection_class=Slow, port=server.sockets[0].getsockname()[1])
        with pytest.raises(ConnectFailed, match="closed by the server"):
            await Connector(Redis(connection_pool=pool)).connect(60.0)
