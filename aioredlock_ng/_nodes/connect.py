"""Connections made by redis-py, whose transports are taken over.

Only this module uses the internals of redis-py, which does URL parsing, DNS, TLS, AUTH, HELLO,
SELECT and the Sentinel lookup. A user's client is not altered: connections are made from the
settings of its pool. Every setting is switched off that would send a command twice, time out by
itself, or close a connection unnoticed.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff

from aioredlock_ng._core.redaction import Redaction
from aioredlock_ng._core.refusals import harmless
from aioredlock_ng._nodes.given import (
    address_of,
    has_unknown_secrets,
    plain,
    pool_of,
    secrets_in,
    secrets_of,
)
from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["ConnectFailed", "Connector", "Wire"]

_PARAMETERS = frozenset(inspect.signature(AbstractConnection.__init__).parameters)

_UNWANTED = ("maint_notifications_pool_handler", "event_dispatcher", "himport_registry")
"""Settings by which connections report to their pool. Our connections belong to no pool."""

_UNACKED_LIMIT = 10.0
"""Seconds after which the kernel gives up a connection whose bytes are not acknowledged.

The cause is a partition, or a hung server that was sent more than its kernel buffers. When such a
server wakes, it executes the buffered commands."""


class ConnectFailed(Exception):
    """There is no connection. The text gives the reason in the server's or the system's words.

    Attributes:
        permanent: True if a retry does not help until somebody changes settings.
    """

    def __init__(self, reason: str, *, permanent: bool = False) -> None:
        super().__init__(reason)
        self.permanent = permanent


class _NoTransport(Exception):
    """An open connection has no asyncio transport that a channel could take over."""


class Wire:
    """An authenticated connection, whose transport is free for a channel.

    Attributes:
        transport: The transport.
        received: Bytes that were already read from it.
        resp3: True if the connection speaks RESP3.
        redact: Takes the node's credentials out of a text. Every text of the server passes through
            it.
    """

    __slots__ = ("_keep", "received", "redact", "resp3", "transport")

    def __init__(self, connection: Any, resp3: bool, redact: Callable[[str], str]) -> None:
        self.redact = redact
        writer, reader = connection._writer, connection._reader
        self.transport: asyncio.Transport = writer.transport
        self.received = bytes(reader._buffer)
        self.resp3 = resp3
        # A StreamWriter closes its transport when it is garbage-collected. So does a Connection
        # that has a writer.
        self._keep = (writer, reader)
        connection._writer = connection._reader = None


class Connector:
    """The way to reach one node, made from a user's URL or client.

    Attributes:
        address: For people: `host:port`, `host:port/db`, a socket's path, or `service@sentinel`.
        identity: Equal for two nodes that are certainly the same server.
        by_sentinel: True if a Sentinel names the primary. The Sentinel may notice a new primary
            late.

    Raises:
        ConfigurationError: The argument is no usable node.
    """

    def __init__(self, node: object) -> None:
        pool, problem = pool_of(node)
        if problem:
            raise ConfigurationError(problem)
        self._redact = Redaction([*secrets_in(node), *secrets_of(pool)])
        self._hides_words = has_unknown_secrets(pool)
        # Connections of a Sentinel pool hold only a weak reference to it.
        self._node = node
        self._make: Callable[..., Any] = pool.connection_class
        kwargs = dict(pool.connection_kwargs)
        kwargs["retry"] = Retry(NoBackoff(), 0)
        kwargs.update(
            retry_on_timeout=False,
            retry_on_error=[],
            socket_timeout=None,
            socket_connect_timeout=None,
            decode_responses=False,
            health_check_interval=0,
        )
        for name in _UNWANTED:
            kwargs.pop(name, None)
        if "maint_notifications_config" in _PARAMETERS:
            from redis.maint_notifications import MaintNotificationsConfig

            kwargs["maint_notifications_config"] = MaintNotificationsConfig(enabled=False)
        self._kwargs = kwargs
        self.address, self.identity = address_of(pool)
        self.by_sentinel = isinstance(pool, SentinelConnectionPool) and pool.is_master
        try:
            self._make(**{**kwargs, "protocol": 3})
        except (TypeError, ValueError, redis_errors.RedisError) as error:
            secret = isinstance(node, str) and "password" in node
            problem = (
                f"node {self.address}: {self._redact(plain(error, secret))};"
                " remove or correct that option"
            )
        # An error that is raised outside of the handlers has no context. A parser's words may quote
        # a password.
        if problem:
            raise ConfigurationError(problem)

    async def connect(self, within: float) -> Wire:
        """Connect, authenticate and select the database, by RESP3 if the server has it.

        Raises:
            ConnectFailed: There is no connection. The text contains none of the node's credentials.

        Safety: a cancellation at any await closes the half-made connection. The loop may end at
            once.
        """
        try:
            async with asyncio.timeout(within):
                try:
                    return await self._connect(3)
                except redis_errors.AuthenticationError:
                    raise
                except redis_errors.ResponseError:
                    # HELLO is unknown to Redis before 6 and to some proxies. The user may lack the
                    # right to HELLO.
                    return await self._connect(2)
        # redis-py may raise anything here, such as AttributeError for a reset connection (its issue
        # 4287).
        except Exception as error:
            reason, permanent = self._reason(error, within)
        # An error that is raised here has no context. The error of redis-py may quote the password.
        raise ConnectFailed(reason, permanent=permanent)

    def _reason(self, error: Exception, within: float) -> tuple[str, bool]:
        """Return the reason without credentials, and True if a retry does not help."""
        if isinstance(error, TimeoutError):
            return f"no connection within {within:g} s", False
        if isinstance(error, _NoTransport):
            kind = getattr(self._make, "__qualname__", "connection")
            remedy = "give a URL or a client whose connections are redis-py's own"
            return f"its {kind} offers no transport; {remedy}", True
        # A server that does not know AUTH quotes the arguments.
        words = harmless(self._redact(str(error)))
        if self._hides_words:
            words = (
                f"{type(error).__name__}; its words may quote the credentials of a Sentinel,"
                " and are not shown"
            )
        if isinstance(error, redis_errors.TimeoutError):
            return words or "timed out", False
        if isinstance(error, (redis_errors.AuthenticationError, redis_errors.AuthorizationError)):
            return f"authentication failed: {words}", True
        return words or type(error).__name__, False

    async def _connect(self, protocol: int) -> Wire:
        connection = self._make(**{**self._kwargs, "protocol": protocol})
        opened: list[asyncio.Transport | None] = []
        open_streams = connection._connect

        async def open_and_tell() -> None:
            await open_streams()
            opened.append(_transport_of(connection))
            if opened == [None]:
                raise RuntimeError("no transport")

        send = connection.send_command

        async def learn_and_send(*words: Any, **settings: Any) -> None:
            # The password of a credential provider is known only here. It is sent by AUTH or HELLO.
            if "AUTH" in words[:3]:
                self._redact.learn(words[-1])
            await send(*words, **settings)

        connection._connect, connection.send_command = open_and_tell, learn_and_send
        try:
            await _cancellable(connection.connect())
            if _transport_of(connection) is None:
                raise _NoTransport
            _watch_for_partitions(connection._writer.get_extra_info("socket"))
            wire = Wire(connection, protocol == 3, self._redact)
        except BaseException:
            # redis-py may leave the transport open. A regular close of TLS would wait for the
            # server.
            for transport in filter(None, opened):
                transport.abort()
            connection._writer = connection._reader = None
            if None in opened:
                raise _NoTransport from None
            raise
        finally:
            del connection._connect, connection.send_command
        return wire


async def _cancellable(connecting: Awaitable[None]) -> None:
    """Await a call that may swallow a cancellation, and raise the cancellation afterwards.

    A task whose cancellation is swallowed would reconnect for ever. On Python 3.11 redis-py calls
    `wait_for` around a command to a Sentinel. `wait_for` swallows a cancellation that comes when
    the command has just been sent. A user's own connection class may swallow any cancellation.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        await connecting
    except Exception:
        if task.cancelling() > before:
            raise asyncio.CancelledError from None
        raise
    if task.cancelling() > before:
        raise asyncio.CancelledError


def _transport_of(connection: Any) -> asyncio.Transport | None:
    return getattr(getattr(connection, "_writer", None), "transport", None)


def _watch_for_partitions(sock: Any) -> None:
    """Let the kernel notice a peer that vanished.

    The kernel of a hung server still acknowledges bytes.
    """
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_NODELAY", 1),
        ("TCP_KEEPIDLE", 5),
        ("TCP_KEEPINTVL", 2),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", int(_UNACKED_LIMIT * 1000)),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
