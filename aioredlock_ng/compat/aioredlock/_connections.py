"""Convert the connections of aioredlock to nodes of `Redlock`, without connecting."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from redis.asyncio import (
    Connection,
    ConnectionPool,
    Redis,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio import Sentinel as RedisSentinel
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelManagedSSLConnection
from redis.backoff import NoBackoff

from aioredlock_ng import ConfigurationError
from aioredlock_ng.compat.aioredlock.sentinel import Sentinel

__all__ = ["nodes_of", "without_passwords"]

_IGNORED = frozenset(
    {"commands_factory", "encoding", "loop", "maxsize", "minsize", "parser", "timeout"}
)
"""Settings of aioredis's pools and replies, which have no effect here.

One connection per node serves all locks, and replies are not decoded.
"""

_USED = frozenset({"db", "host", "password", "port", "ssl"})


class _Given:
    """A replacement for redis-py's `RedisSSLContext` that returns an existing `SSLContext`."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def get(self) -> ssl.SSLContext:
        return self._context


class _TLS(SSLConnection):
    def __init__(self, *, context: ssl.SSLContext, **settings: Any) -> None:
        super().__init__(**settings)
        self.ssl_context: Any = _Given(context)


class _SentinelTLS(SentinelManagedSSLConnection):
    def __init__(self, *, context: ssl.SSLContext, **settings: Any) -> None:
        super().__init__(**settings)  # type: ignore[no-untyped-call,unused-ignore]
        self.ssl_context: Any = _Given(context)


def nodes_of(connections: Any) -> list[Redis]:
    """Return a client for each node. `Redlock` uses only the settings of these clients.

    Raises:
        ConfigurationError: A connection is invalid. The message shows a valid form.
    """
    if not isinstance(connections, (list, tuple)):
        raise ConfigurationError(
            f"redis_connections must be a list of connections, not {type(connections).__name__}"
        )
    return [_node_of(connection) for connection in connections]


def without_passwords(connections: Any) -> list[str]:
    """Return the connections as texts for messages, without passwords and queries."""
    return [_shown(connection) for connection in connections]


def _node_of(connection: Any) -> Redis:
    match connection:
        case Sentinel():
            return _primary(connection)
        case Redis():
            return connection
        case str():
            return _from_url(connection)
        case dict():
            if unknown := connection.keys() - _USED - _IGNORED:
                raise ConfigurationError(
                    f"connection {_shown(connection)}: unknown settings {sorted(unknown)}; leave"
                    " them out"
                )
            place = {
                "host": connection.get("host", "localhost"),
                "port": connection.get("port", 6379),
            }
            return _client(place, connection)
        case (host, port):
            return _client({"host": host, "port": port}, {})
    if type(connection).__module__.partition(".")[0] == "aioredis":
        raise ConfigurationError(
            "a pool of aioredis cannot be a node, because its connections belong to aioredis;"
            " pass the source of the pool: a URL, a (host, port) tuple or a dict"
        )
    raise ConfigurationError(
        "a connection must be a dict, a (host, port) tuple, a redis:// URL, the path of a socket"
        f" or a Sentinel, not {type(connection).__name__}"
    )


def _from_url(url: str) -> Redis:
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        settings = {
            "password": parts.password or query.get("password"),
            "ssl": query.get("ssl") == "true",
        }
        match parts.scheme:
            case "":
                return _client({"path": url}, {})
            case "unix":
                return _client({"path": parts.path}, settings | {"db": query.get("db")})
            case "redis" | "rediss":
                settings |= {"db": parts.path.removeprefix("/") or query.get("db")}
                settings["ssl"] = settings["ssl"] or parts.scheme == "rediss"
                return _client(
                    {"host": parts.hostname or "localhost", "port": parts.port or 6379}, settings
                )
    except ConfigurationError:
        raise
    except ValueError:  # The error may quote a part of a password, so it is not shown.
        pass
    raise ConfigurationError(
        f"connection {_shown(url)} is not a URL of a Redis server; write redis://host:6379/0,"
        " rediss:// or the path of a socket"
    )


def _client(place: dict[str, Any], settings: dict[str, Any]) -> Redis:
    kind: type[Any] = UnixDomainSocketConnection if "path" in place else Connection
    kwargs = place | {"db": _database(settings.get("db")), "password": settings.get("password")}
    if (context := _context(settings.get("ssl"))) is not None:
        if "path" in place:
            raise ConfigurationError(
                f"connection {place['path']}: TLS over a Unix socket is not supported; leave out"
                " 'ssl'"
            )
        kind, kwargs["context"] = _TLS, context
    if "port" in kwargs:
        kwargs["port"] = _port(kwargs["port"])
    return Redis(connection_pool=ConnectionPool(connection_class=kind, **kwargs))


def _primary(sentinel: Sentinel) -> Redis:
    settings: dict[str, Any] = {"db": sentinel.db, "password": sentinel.password}
    if (context := _context(sentinel.ssl)) is not None:
        settings |= {"connection_class": _SentinelTLS, "context": context}
    asking = {
        "socket_timeout": sentinel.timeout,
        "socket_connect_timeout": sentinel.timeout,
        "retry": Retry(NoBackoff(), 0),
    }
    make: Any = RedisSentinel
    watching = make(sentinel.connection, sentinel_kwargs=asking)
    primary: Redis = watching.master_for(sentinel.master, **settings)
    return primary


def _port(value: Any) -> int:
    with suppress(TypeError, ValueError, OverflowError):
        if 0 <= (port := int(value)) <= 65535:
            return port
    # The value is not shown, because a password may stand in its place.
    raise ConfigurationError("the port of a connection must be a number from 0 to 65535")


def _database(value: Any) -> int:
    if value in (None, ""):
        return 0
    with suppress(TypeError, ValueError):
        return int(value)
    # The error must not show the text, because it may be a part of a password that contains a "/".
    # The error is raised outside of the `with`, so that it has no context that shows the text.
    raise ConfigurationError(
        "the database of a connection must be a number from 0 to 15. If the password contains a"
        " '/', the text after the '/' was taken for the database, because aioredis does not"
        " percent-decode a URL: give a dict with 'host', 'port' and 'password'"
    )


def _context(given: Any) -> ssl.SSLContext | None:
    if isinstance(given, ssl.SSLContext) or not given:
        return given or None
    if given is True:
        return ssl.create_default_context()
    raise ConfigurationError(
        f"'ssl' must be an ssl.SSLContext, True or False, not {type(given).__name__}"
    )


def _shown(connection: Any) -> str:
    match connection:
        case str():
            scheme, separator, rest = connection.partition("://")
            place, _, query = (rest or scheme).partition("?")
            # If an "@" follows the "?", any part of the URL may belong to a password, so show only
            # the scheme.
            shown = "…" if "@" in query else place.rpartition("@")[2]
            return f"{scheme}{separator}{shown}" if separator else shown
        case dict():
            return f"{connection.get('host', 'localhost')}:{connection.get('port', 6379)}"
        case (host, port):
            return f"{host}:{port}"
    return repr(connection) if isinstance(connection, Sentinel) else type(connection).__name__
