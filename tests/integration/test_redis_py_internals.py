"""Fails loudly the day that redis-py's internals move which `_nodes/connect.py` touches; says which
and what for.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis, Sentinel
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff

from aioredlock_ng._nodes.connect import Connector

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer

PING = b"*1\r\n$4\r\nPING\r\n"

FORCED = {
    "retry",
    "retry_on_timeout",
    "retry_on_error",
    "socket_timeout",
    "socket_connect_timeout",
    "decode_responses",
    "health_check_interval",
    "protocol",
}


class _Taker(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.view = memoryview(bytearray(1024))
        self.received = b""
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view

    def buffer_updated(self, nbytes: int) -> None:
        self.received += bytes(self.view[:nbytes])
        if not self.answered.done():
            self.answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


@pytest.fixture(params=["tcp", "unix", pytest.param("tls", marks=pytest.mark.tls)])
def url(request: pytest.FixtureRequest, start_server: Callable[..., LocalServer]) -> str:
    # Not among the arguments: the other kinds run where there is no server with TLS.
    server: LocalServer = (
        request.getfixturevalue("tls_server")
        if request.param == "tls"
        else start_server(unix_socket=request.param == "unix")
    )
    return server.url


async def test_a_connected_connection_has_a_stream_pair_with_a_transport_and_an_empty_buffer(
    url: str,
) -> None:
    pool = ConnectionPool.from_url(url, protocol=3)
    connection: Any = pool.connection_class(**pool.connection_kwargs)
    tasks, opened, open_streams = asyncio.all_tasks(), [], connection._connect

    async def open_and_tell() -> None:
        await open_streams()
        opened.append(connection._writer)

    connection._connect = open_and_tell
    await connection.connect()
    assert opened == [connection._writer], "what must be closed when the rest of connecting fails"
    assert isinstance(connection._writer, asyncio.StreamWriter)
    assert isinstance(connection._reader, asyncio.StreamReader)
    assert callable(connection._writer.transport.set_protocol)
    assert isinstance(connection._reader._buffer, bytearray), (
        "where bytes lie that were received and not yet parsed"
    )
    assert not connection._reader._buffer
    assert asyncio.all_tasks() == tasks, "nothing may go on reading behind our back"
    await connection.disconnect()


async def test_the_transport_of_a_connection_can_be_taken_over_for_good(url: str) -> None:
    wire = await Connector(url).connect(30)
    # The garbage collector now finalizes redis-py's connection, which must not close the transport.
    gc.collect()
    taker = _Taker()
    wire.transport.set_protocol(taker)
    for _ in range(2):
        taker.received, taker.answered = b"", asyncio.get_running_loop().create_future()
        wire.transport.write(PING)
        await asyncio.wait_for(taker.answered, 30)
        assert taker.received == b"+PONG\r\n", "the handshake's answers must all have been read"
        gc.collect()
    assert wire.received == b""
    assert wire.resp3
    wire.transport.close()
    # TLS says goodbye first, and the loop must not end before the server's.
    await asyncio.wait_for(taker.lost, 30)


@pytest.mark.parametrize("kind", [Connection, SSLConnection, UnixDomainSocketConnection])
def test_every_setting_that_is_forced_exists(kind: type[AbstractConnection]) -> None:
    parameters = set(inspect.signature(AbstractConnection.__init__).parameters)
    assert parameters >= FORCED, "a setting of AbstractConnection has another name"
    settings: Any = dict.fromkeys(
        FORCED - {"retry", "retry_on_error", "protocol", "health_check_interval"}
    )
    connection: Any = kind(
        **settings,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        protocol=3,
        health_check_interval=0,
    )
    assert connection._writer is None, "before connecting"
    assert connection._reader is None, "before connecting"
    assert connection.socket_timeout is None
    with pytest.raises(TypeError, match="unexpected keyword argument 'color'"):
        kind(color="red")  # type: ignore[call-arg]


@pytest.mark.parametrize("pool", [ConnectionPool, BlockingConnectionPool])
def test_a_pool_has_the_settings_of_its_connections(pool: type[ConnectionPool]) -> None:
    made: Any = pool.from_url("rediss://me:word@127.0.0.1:7/3?ssl_ca_certs=/ca")
    assert made.connection_class is SSLConnection
    told = {
        name: made.connection_kwargs[name]
        for name in ("host", "port", "db", "username", "password")
    }
    assert told == {"host": "127.0.0.1", "port": 7, "db": 3, "username": "me", "password": "word"}
    assert pool.from_url("unix:///a/socket").connection_kwargs["path"] == "/a/socket"
    client = Redis(host="127.0.0.2", port=8)
    assert client.connection_pool.connection_kwargs["host"] == "127.0.0.2"
    # Whatever newer versions put there must be accepted when a connection of its own is made.
    assert Connector(client).address == "127.0.0.2:8"


def test_a_sentinels_pool_has_its_service_and_its_sentinels() -> None:
    sentinel = Sentinel([("127.0.0.1", 26379), ("127.0.0.2", 26379)])
    pool: Any = sentinel.master_for("main").connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "main"
    asked = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
    assert [(kwargs["host"], kwargs["port"]) for kwargs in asked] == [
        ("127.0.0.1", 26379),
        ("127.0.0.2", 26379),
    ]
    assert Connector(sentinel.master_for("main")).address == "main@sentinel"


def test_maintenance_notifications_can_be_switched_off_where_they_exist() -> None:
    if "maint_notifications_config" in inspect.signature(AbstractConnection.__init__).parameters:
        from redis.maint_notifications import MaintNotificationsConfig

        assert MaintNotificationsConfig(enabled=False).enabled is False


def test_the_errors_of_redis_py_have_the_expected_base_classes() -> None:
    assert not issubclass(exceptions.AuthenticationError, exceptions.ResponseError)
    assert not issubclass(exceptions.TimeoutError, exceptions.ResponseError)
    assert issubclass(exceptions.NoPermissionError, exceptions.ResponseError)
