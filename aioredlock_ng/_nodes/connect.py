"""Connections that redis-py makes. Channels take over the transports of these connections.

redis-py does URL parsing, DNS, TLS, AUTH, HELLO, SELECT and the Sentinel lookup. A user's client is
not altered: connections are made from the settings of its pool. Some features of redis-py are
switched off, because they would send a command twice, set a timeout of their own, or close a
connection unnoticed.

Importing redis-py takes longer than importing the rest of the package. So the package imports this
module only when nodes are given, for example to `Redlock`.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_errors
from redis.asyncio.sentinel import MasterNotFoundError, SentinelConnectionPool

from aioredlock_ng._core.redaction import Redaction
from aioredlock_ng._core.refusals import harmless
from aioredlock_ng._nodes.node_settings import (
    address_of,
    has_unknown_secrets,
    plain,
    pool_of,
    secrets_in,
    secrets_of,
    settings_without_retries,
)
from aioredlock_ng._nodes.sentinels import asked_anew
from aioredlock_ng._nodes.wire import ConnectFailed, NoTransport, Wire
from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

__all__ = ["Connector"]

_UNACKED_LIMIT = 10.0
"""Seconds after which the kernel gives up a connection whose bytes are not acknowledged.

Acknowledgements are missing after a partition, or if the kernel of a hung server has no room for
more bytes."""


class Connector:
    """Makes the connections to one node, from a user's URL or client.

    Attributes:
        address: The node's name in messages: `host:port`, `host:port/db`, a socket's path, or
            `service@sentinel`.
        identity: A value that is equal for two nodes that name the same server.
        by_sentinel: True if a Sentinel names the primary. The Sentinel may notice a new primary
            late.

    Raises:
        ConfigurationError: The argument is not a usable node.
    """

    def __init__(self, node: object) -> None:
        pool, problem = pool_of(node)
        if problem:
            raise ConfigurationError(problem)
        self._redact = Redaction([*secrets_in(node), *secrets_of(pool)])
        self._hides_words = has_unknown_secrets(pool)
        self._pool = pool
        self._make: Callable[..., Any] = pool.connection_class
        kwargs = settings_without_retries(pool.connection_kwargs)
        kwargs.update(
            socket_timeout=None,
            socket_connect_timeout=None,
            decode_responses=False,
        )
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
        # Raise the error after the `except` block. Inside the block, the error of redis-py would
        # become its context, and the text of that error may quote a password.
        if problem:
            raise ConfigurationError(problem)

    async def connect(self, within: float) -> Wire:
        """Connect, authenticate and select the database, with RESP3 if the server supports RESP3.

        Raises:
            ConnectFailed: No connection could be made. The error's text contains none of the node's
                credentials. The error is permanent if the login failed.
            NoTransport: The client's connections cannot be used.

        Safety: a cancellation at any await closes the half-made connection. The event loop may be
            closed right after the cancellation.
        """
        try:
            async with asyncio.timeout(within):
                try:
                    return await self._connect(3, within)
                except redis_errors.AuthenticationError:
                    raise
                except redis_errors.ResponseError:
                    # Redis before 6 and some proxies do not know HELLO. The Redis user may also
                    # have no right to run HELLO. RESP2 works without HELLO.
                    return await self._connect(2, within)
        # redis-py may raise any exception here, such as AttributeError for a reset connection (its
        # issue 4287).
        except Exception as error:
            failure = NoTransport if isinstance(error, NoTransport) else ConnectFailed
            reason, permanent = self._reason(error, within)
        # Raise the error after the `except` block. Inside the block, the error of redis-py would
        # become its context, and the text of that error may quote a password.
        raise failure(reason, permanent=permanent)

    def _reason(self, error: Exception, within: float) -> tuple[str, bool]:
        """Return the reason of the failure, without credentials, and True if no retry can help."""
        if isinstance(error, TimeoutError):
            return f"no connection within {within:g} s", False
        if isinstance(error, NoTransport):
            return str(error), error.permanent
        if isinstance(error, MasterNotFoundError):
            # The text of redis-py quotes all settings of the clients that ask the Sentinels.
            return "no Sentinel answers that knows a primary of this name", False
        # A server that does not know AUTH quotes the arguments of AUTH, including the password.
        words = harmless(self._redact(str(error)))
        if self._hides_words:
            words = (
                f"{type(error).__name__}; its text is not shown, because it may quote the"
                " credentials of a Sentinel"
            )
        if isinstance(error, redis_errors.TimeoutError):
            return words or "timed out", False
        if isinstance(error, (redis_errors.AuthenticationError, redis_errors.AuthorizationError)):
            return f"authentication failed: {words}", True
        if system := _system_words(error) or _system_words(error.__context__):
            return system, False
        return words or type(error).__name__, False

    async def _connect(self, protocol: int, within: float) -> Wire:
        opened: list[asyncio.Transport | None] = []
        connection: Any = None
        try:
            async with asked_anew(self._pool, within) as sentinels:
                connection = self._make(**{**self._kwargs, **sentinels, "protocol": protocol})
                with self._observed(connection, opened):
                    await _cancellable(_answered(connection.connect()))
            if _transport_of(connection) is None:
                raise self._no_transport()
            if connection._reader.at_eof() or connection._writer.is_closing():
                # The stream has taken the end of the connection, so a channel would not notice it.
                raise redis_errors.ConnectionError("closed by the server")
            _watch_for_partitions(connection._writer.get_extra_info("socket"))
            return Wire(connection, protocol == 3, self._redact)
        except BaseException as error:
            # redis-py may leave the transport open. The transport is aborted, because a regular
            # close of TLS would wait for the server.
            for transport in filter(None, opened):
                transport.abort()
            if connection is not None:
                connection._writer = connection._reader = None
            if None in opened and isinstance(error, Exception):
                raise self._no_transport() from None
            raise

    def _no_transport(self) -> NoTransport:
        kind = getattr(self._make, "__qualname__", "connection")
        remedy = "give a URL or a client whose connections are redis-py's own"
        return NoTransport(f"its {kind} offers no transport; {remedy}", permanent=True)

    @contextmanager
    def _observed(self, connection: Any, opened: list[asyncio.Transport | None]) -> Iterator[None]:
        """Note the transport that a connection opens, and the passwords that it sends."""
        open_streams = connection._connect

        async def open_and_tell() -> None:
            try:
                await open_streams()
            except BaseException:
                # On a Unix socket, redis-py logs in while it opens the streams, so a failed login
                # comes here with an open transport.
                opened.extend(filter(None, [_transport_of(connection)]))
                raise
            opened.append(_transport_of(connection))
            if opened == [None]:
                raise RuntimeError("no transport")

        send = connection.send_command

        async def learn_and_send(*words: Any, **settings: Any) -> None:
            # The password of a credential provider appears only here, as an argument of AUTH or
            # HELLO.
            if "AUTH" in words[:3]:
                self._redact.learn(words[-1])
            await send(*words, **settings)

        connection._connect, connection.send_command = open_and_tell, learn_and_send
        try:
            yield
        finally:
            del connection._connect, connection.send_command


def _system_words(error: BaseException | None) -> str:
    """Return the operating system's words for a failed connection, such as "connection refused".

    redis-py adds numbers and the address to these words. Return "" for any other error.
    """
    if isinstance(error, socket.gaierror):
        return str(error.strerror).lower()
    if not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
        return ""
    # If a host has several addresses and all fail, asyncio raises one error that has no `errno`.
    # The text of this error quotes the error of each address, with the number.
    numbers = [error.errno] if error.errno else map(int, re.findall(r"\[Errno (\d+)\]", str(error)))
    return " and ".join(dict.fromkeys(os.strerror(number).lower() for number in numbers))


async def _answered(connecting: Awaitable[None]) -> None:
    """Await a call that may hide an error of the server in another error. Raise the hidden error.

    On a Unix socket, redis-py logs in as a part of opening the streams, and takes each error for an
    error of the connection. Without this function, a wrong password would look like an outage, and
    a server without HELLO would not be asked again without HELLO.
    """
    try:
        await connecting
    except redis_errors.ConnectionError as error:
        if isinstance(error.__cause__, redis_errors.RedisError):
            raise error.__cause__ from None
        raise


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
    """Let the kernel close the connection if the peer's kernel does not answer any more.

    The kernel does not notice a hung server whose own kernel still acknowledges bytes.
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
