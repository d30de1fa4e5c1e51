"""Makes connections by redis-py's own `Connection` and hands their transports over; the one place that touches its internals.

redis-py does URL parsing, DNS, TLS, AUTH, HELLO, SELECT and the Sentinel lookup. Nothing of a user's client is altered:
connections are made from its pool's settings, with everything switched off that would send a command twice, time out
on its own or close behind our back.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

import redis.asyncio as aredis
from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.credentials import UsernamePasswordCredentialProvider

from aioredlock_ng._core.redaction import Redaction
from aioredlock_ng._core.refusals import harmless
from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["ConnectFailed", "Connector", "Wire"]

_SCHEMES = ("redis://", "rediss://", "unix://")

_PARAMETERS = frozenset(inspect.signature(AbstractConnection.__init__).parameters)

_UNWANTED = ("maint_notifications_pool_handler", "event_dispatcher", "himport_registry")
"""Settings by which connections talk back to their pool; ours belong to no pool."""

_FAKEREDIS = (
    "a fakeredis client cannot be a node: its connections lead to no server; in tests use nodes in memory, by"
    " aioredlock_ng.testing.MemoryNodes(3).redlock() or the pytest fixture `redlock` (docs/testing.md)"
)

_SECRETS = ("password", "ssl_password")
"""Settings of a connection that must appear in no text."""

_UNACKED_LIMIT = 10.0
"""Seconds after which the kernel gives up a connection whose bytes nobody takes: a partition, or a hung server that was sent
more than its kernel takes for it (which, when it wakes, executes what it had)."""


class ConnectFailed(Exception):
    """No connection; the text says why in the server's or the system's words.

    Attributes:
        permanent: True when trying again cannot help until somebody changes settings.
    """

    def __init__(self, reason: str, *, permanent: bool = False) -> None:
        super().__init__(reason)
        self.permanent = permanent


class _NoTransport(Exception):
    """A connection says that it is open and has no asyncio transport, which the channel would take over."""


class Wire:
    """An authenticated connection whose transport nobody else uses any more.

    Attributes:
        redact: Takes the node's credentials out of a text. Every text of the server goes through it.
    """

    __slots__ = ("_keep", "received", "redact", "resp3", "transport")

    def __init__(self, connection: Any, resp3: bool, redact: Callable[[str], str]) -> None:
        self.redact = redact
        writer, reader = connection._writer, connection._reader
        self.transport: asyncio.Transport = writer.transport
        self.received = bytes(reader._buffer)
        self.resp3 = resp3
        # A StreamWriter closes its transport when collected; a Connection that has one does, too.
        self._keep = (writer, reader)
        connection._writer = connection._reader = None


class Connector:
    """How to reach one node, from whatever the user gave.

    Attributes:
        address: For people: `host:port`, `host:port/db`, a socket's path, or `service@sentinel`.
        identity: Equal for two nodes that are certainly the same server.
        by_sentinel: True where a Sentinel names the primary, and may be late to notice that it is another one.

    Raises:
        ConfigurationError: The argument is no usable node.
    """

    def __init__(self, node: object) -> None:
        self._redact = Redaction(_secrets_in(node))
        pool, problem = self._pool_of(node)
        if problem:
            raise ConfigurationError(problem)
        self._redact = Redaction([*_secrets_in(node), *_secrets_of(pool)])
        self._speechless = _has_unknown_secrets(pool)
        self._node = node  # keeps a Sentinel pool alive: its connections only hold a weak reference
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
        self.address, self.identity = _address_of(pool)
        self.by_sentinel = isinstance(pool, SentinelConnectionPool) and pool.is_master
        try:
            self._make(**{**kwargs, "protocol": 3})
        except (TypeError, ValueError, redis_errors.RedisError) as error:
            secret = isinstance(node, str) and "password" in node
            problem = f"node {self.address}: {self._redact(_plain(error, secret))}; remove or correct that option"
        # Raised outside of the handlers, errors have no context: the words of a parser may quote a password.
        if problem:
            raise ConfigurationError(problem)

    def _pool_of(self, node: object) -> tuple[Any, str]:
        """Return the pool with the settings, or None and what is wrong."""
        if isinstance(node, str):
            shown = repr(_without_secrets(node))
            if not node.startswith(_SCHEMES):
                return None, f"node {shown} is no URL of a Redis server; use redis://, rediss:// or unix://"
            try:
                parts = _split(node)
                # A "/", "?" or "#" in a password ends it, and what follows would be shown as a path, an option or a host.
                if "@" in (parts.path if parts.scheme == "unix" else "") + parts.query + parts.fragment:
                    raise ValueError("it has an '@' behind a '/', '?' or '#'; percent-encode those that part nothing")
                if "," in parts.netloc.rpartition("@")[2]:
                    raise ValueError("its host has a ','; a node is one server, and options follow a '?'")
                # redis-py takes the one for localhost and the other for database 0.
                if parts.scheme == "unix" and not parts.path:
                    raise ValueError("it names no socket; write unix:///path/of/the/socket")
                if parts.scheme != "unix" and parts.path.strip("/") and not parts.path.strip("/").isdecimal():
                    raise ValueError("its path is no database number; percent-encode '/' in a user name or password")
                return aredis.ConnectionPool.from_url(node), ""
            except (TypeError, ValueError, redis_errors.RedisError) as error:
                return None, f"node {shown}: {self._redact(_plain(error))}"
        if _is_of_fakeredis(node):
            return None, _FAKEREDIS
        if isinstance(node, aredis.Redis):
            return node.connection_pool, ""
        return None, (
            f"a node must be a URL, a redis.asyncio.Redis client or a node object, not {type(node).__name__}"
            " (a synchronous redis.Redis or a cluster client cannot serve: pass its URL instead)"
        )

    async def connect(self, within: float) -> Wire:
        """Connect, authenticate, select the database; by RESP3 where the server has it.

        Raises:
            ConnectFailed: With the server's or the system's words, without the node's credentials.

        Safety: cancelled at any await, the half-made connection is closed; the loop may end at once.
        """
        try:
            async with asyncio.timeout(within):
                try:
                    return await self._connect(3)
                except redis_errors.AuthenticationError:
                    raise
                except redis_errors.ResponseError:
                    # HELLO is unknown before Redis 6, to some proxies, and to users without the right for it.
                    return await self._connect(2)
        # redis-py may leak anything here (AttributeError from a reset connection: its issue 4287).
        except Exception as error:
            reason, permanent = self._reason(error, within)
        # Raised here, it has no context: redis-py's error may quote the password.
        raise ConnectFailed(reason, permanent=permanent)

    def _reason(self, error: Exception, within: float) -> tuple[str, bool]:
        """Say why there is no connection, without credentials; and whether trying again is in vain."""
        if isinstance(error, TimeoutError):
            return f"no connection within {within:g} s", False
        if isinstance(error, _NoTransport):
            kind = getattr(self._make, "__qualname__", "connection")
            return f"its {kind} offers no transport; give a URL or a client whose connections are redis-py's own", True
        # A server that does not know AUTH quotes its arguments.
        words = harmless(self._redact(str(error)))
        if self._speechless:
            words = f"{type(error).__name__}; its words may quote the credentials of a Sentinel, and are not shown"
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
            # A credential provider's password is known only here: it leaves by AUTH, or by HELLO with AUTH.
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
            # redis-py has closed it or will not; TLS would say goodbye, and nobody waits until the server has said its own.
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
    """Await what may swallow a cancellation, and be cancelled all the same; a task that is not would reconnect for ever.

    On Python 3.11 redis-py's `wait_for` around a command to a Sentinel swallows one that comes when the command has just
    been sent; a user's own connection class may do anything.
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


def _split(url: str) -> SplitResult:
    """Split a URL, in words that quote nothing of it: what Python's own show may be of a password."""
    try:
        return urlsplit(url)
    except ValueError:
        raise ValueError("it cannot be read as a URL; percent-encode user name and password") from None


def _transport_of(connection: Any) -> asyncio.Transport | None:
    return getattr(getattr(connection, "_writer", None), "transport", None)


def _is_of_fakeredis(node: object) -> bool:
    """True for a client, pool or connection class of fakeredis, or derived from one. Nothing is imported for it."""
    pool = getattr(node, "connection_pool", None)
    kinds = (type(node), type(pool), getattr(pool, "connection_class", object))
    classes = (cls for kind in kinds for cls in getattr(kind, "__mro__", ()))
    return any(cls.__module__.partition(".")[0] == "fakeredis" for cls in classes)


def _secrets_in(node: object) -> list[str]:
    """Find all that may be a password in the text of a URL, usable or not, as written and decoded."""
    if not isinstance(node, str):
        return []
    user, at, _ = node.partition("://")[2].rpartition("@")
    found = [user.partition(":")[2]] if at else []
    found += re.findall(r"password=([^&#]*)", node)
    return [*found, *map(unquote, found)]


def _secrets_of(pool: Any) -> list[object]:
    """The secrets among the settings of a pool, and of the Sentinels that it asks."""
    found: list[object] = []
    for kwargs in _settings_of(pool):
        found += [kwargs.get(name) for name in _SECRETS]
        if isinstance(provider := kwargs.get("credential_provider"), UsernamePasswordCredentialProvider):
            found.append(provider.password)
    return found


def _has_unknown_secrets(pool: Any) -> bool:
    """True where a Sentinel's credentials are known to its own client alone."""
    providers = (kwargs.get("credential_provider") for kwargs in _settings_of(pool)[1:])
    return any(provider is not None and type(provider) is not UsernamePasswordCredentialProvider for provider in providers)


def _settings_of(pool: Any) -> list[dict[str, Any]]:
    sentinels = pool.sentinel_manager.sentinels if isinstance(pool, SentinelConnectionPool) else ()
    return [pool.connection_kwargs, *(client.connection_pool.connection_kwargs for client in sentinels)]


def _watch_for_partitions(sock: Any) -> None:
    """Let the kernel notice a peer that is gone without a word; a hung server's takes what its buffer holds."""
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


def _address_of(pool: Any) -> tuple[str, object]:
    kwargs = pool.connection_kwargs
    if isinstance(pool, SentinelConnectionPool):
        manager = pool.sentinel_manager
        sentinels = frozenset(
            (s.connection_pool.connection_kwargs.get("host"), s.connection_pool.connection_kwargs.get("port"))
            for s in manager.sentinels
        )
        return f"{pool.service_name}@sentinel", (pool.service_name, sentinels)
    database = kwargs.get("db") or 0
    suffix = f"/{database}" if database else ""
    if "path" in kwargs:
        return f"{kwargs['path']}{suffix}", kwargs["path"]
    host, port = kwargs.get("host", "localhost"), kwargs.get("port", 6379)
    shown = f"[{host}]" if ":" in str(host) else host
    return f"{shown}:{port}{suffix}", (host, int(port))


def _without_secrets(url: str) -> str:
    """Scheme and place; not even the place where an "@" behind a "?" or a "," leaves open what is part of a password."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    place, _, query = rest.partition("?")
    # What follows a comma is another product's way to give settings, a password among them.
    place, _, settings = place.partition(",")
    shown = "…" if "@" in settings + query else place.rpartition("@")[2]
    return f"{scheme}{separator}{shown}"[:80]


def _plain(error: Exception, secret: bool = False) -> str:
    """What is wrong in our words or redis-py's; `secret`: an option's name may be what follows a "&" in a password."""
    text = str(error)
    if text.startswith("Port could not be cast"):  # its words quote what may be the beginning of a password
        return "its port is no number; percent-encode '/', '?' and '#' in a user name or password"
    marker = "unexpected keyword argument "
    if marker not in text:
        return text
    return "unknown option; percent-encode '&' in a password" if secret else f"unknown option {text.split(marker)[1]}"
