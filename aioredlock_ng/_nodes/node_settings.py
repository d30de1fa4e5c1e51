"""Read the settings and the credentials of a node from the URL or the client of the user."""

from __future__ import annotations

import inspect
import re
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import redis.asyncio as aredis
from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.credentials import UsernamePasswordCredentialProvider

from aioredlock_ng._core.redaction import Redaction

__all__ = [
    "address_of",
    "has_unknown_secrets",
    "plain",
    "pool_of",
    "secrets_in",
    "secrets_of",
    "settings_without_retries",
]

_SCHEMES = ("redis://", "rediss://", "unix://")

_FAKEREDIS = (
    "a fakeredis client cannot be a node: its connections lead to no server; in tests use"
    " aioredlock_ng.testing.MemoryNodes(3).redlock() or the pytest fixture `redlock`"
    " (docs/testing.md)"
)

_SECRETS = ("password", "ssl_password")
"""Settings of a connection with secret values, which no message may contain."""


_PARAMETERS = frozenset(inspect.signature(AbstractConnection.__init__).parameters)

_UNWANTED = ("maint_notifications_pool_handler", "event_dispatcher", "himport_registry")
"""Settings by which a connection would report to a pool. They are removed, because the connections
of a node have no pool."""


def pool_of(node: object) -> tuple[Any, str]:
    """Return a connection pool with the settings of `node`, and an empty text.

    If `node` is not usable, return None and a description of the mistake.
    """
    if isinstance(node, str):
        shown = repr(_without_secrets(node))
        if not node.startswith(_SCHEMES):
            return (
                None,
                f"node {shown} is not a URL of a Redis server; use redis://, rediss:// or unix://",
            )
        try:
            parts = _split(node)
            # Without percent-encoding, a "/", "?" or "#" ends the password. Messages would then
            # show the rest of the password as a path, an option or a host. So an "@" behind one of
            # these characters is refused.
            if "@" in (parts.path if parts.scheme == "unix" else "") + parts.query + parts.fragment:
                raise ValueError(
                    "it has an '@' behind a '/', '?' or '#'; percent-encode these in a password"
                )
            if "," in parts.netloc.rpartition("@")[2]:
                raise ValueError(
                    "its host has a ','; a node is one server, and options follow a '?'"
                )
            # Without these checks, redis-py would use localhost for a socket URL without a path. It
            # would drop the first folder of unix://run/redis.sock. It would use database 0 for any
            # other URL whose path is not a number.
            if parts.scheme == "unix" and not parts.path:
                raise ValueError("it names no socket; write unix:///path/of/the/socket")
            if parts.scheme == "unix" and parts.netloc.rpartition("@")[2]:
                raise ValueError(
                    "a socket has no host; write unix:///path/of/the/socket,"
                    " or unix://user:password@/path/of/the/socket"
                )
            if (
                parts.scheme != "unix"
                and parts.path.strip("/")
                and not parts.path.strip("/").isdecimal()
            ):
                raise ValueError(
                    "its path is not a database number; "
                    "percent-encode '/' in a user name or password"
                )
            return aredis.ConnectionPool.from_url(node), ""
        except (TypeError, ValueError, redis_errors.RedisError) as error:
            return None, f"node {shown}: {Redaction(secrets_in(node))(plain(error))}"
    if _is_of_fakeredis(node):
        return None, _FAKEREDIS
    if isinstance(node, aredis.Redis):
        return node.connection_pool, ""
    return None, (
        "a node must be a URL, a redis.asyncio.Redis client or a node object,"
        f" not {type(node).__name__} (in place of a synchronous redis.Redis client, pass its URL;"
        " a Redis Cluster cannot be a node)"
    )


def settings_without_retries(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a connection that sends each command once and reports to no pool."""
    kwargs = {name: value for name, value in settings.items() if name not in _UNWANTED}
    kwargs.update(
        retry=Retry(NoBackoff(), 0),
        retry_on_timeout=False,
        retry_on_error=[],
        health_check_interval=0,
    )
    if "maint_notifications_config" in _PARAMETERS:
        from redis.maint_notifications import MaintNotificationsConfig

        kwargs["maint_notifications_config"] = MaintNotificationsConfig(enabled=False)
    return kwargs


def _split(url: str) -> SplitResult:
    """Split a URL. An error does not show Python's text, which may quote a part of a password."""
    try:
        return urlsplit(url)
    except ValueError:
        raise ValueError(
            "it cannot be read as a URL; percent-encode user name and password"
        ) from None


def _is_of_fakeredis(node: object) -> bool:
    """True if the class of a client, of its pool or of its connections derives from fakeredis."""
    pool = getattr(node, "connection_pool", None)
    kinds = (type(node), type(pool), getattr(pool, "connection_class", object))
    classes = (cls for kind in kinds for cls in getattr(kind, "__mro__", ()))
    return any(cls.__module__.partition(".")[0] == "fakeredis" for cls in classes)


def secrets_in(node: object) -> list[str]:
    """Return every part of a URL that may be a password, both as written and decoded.

    The URL need not be valid. If `node` is not a text, the list is empty.
    """
    if not isinstance(node, str):
        return []
    user, at, _ = node.partition("://")[2].rpartition("@")
    found = [user.partition(":")[2]] if at else []
    found += re.findall(r"password=([^&#]*)", node)
    return [*found, *map(unquote, found)]


def secrets_of(pool: Any) -> list[object]:
    """Return the secrets in the settings of a pool and of its Sentinels."""
    found: list[object] = []
    for kwargs in _settings_of(pool):
        found += [kwargs.get(name) for name in _SECRETS]
        if isinstance(
            provider := kwargs.get("credential_provider"), UsernamePasswordCredentialProvider
        ):
            found.append(provider.password)
    return found


def has_unknown_secrets(pool: Any) -> bool:
    """True if a Sentinel has a credential provider whose credentials cannot be read here."""
    providers = (kwargs.get("credential_provider") for kwargs in _settings_of(pool)[1:])
    return any(
        provider is not None and type(provider) is not UsernamePasswordCredentialProvider
        for provider in providers
    )


def _settings_of(pool: Any) -> list[dict[str, Any]]:
    sentinels = pool.sentinel_manager.sentinels if isinstance(pool, SentinelConnectionPool) else ()
    return [
        pool.connection_kwargs,
        *(client.connection_pool.connection_kwargs for client in sentinels),
    ]


def address_of(pool: Any) -> tuple[str, object]:
    kwargs = pool.connection_kwargs
    if isinstance(pool, SentinelConnectionPool):
        manager = pool.sentinel_manager
        sentinels = frozenset(
            (
                s.connection_pool.connection_kwargs.get("host"),
                s.connection_pool.connection_kwargs.get("port"),
            )
            for s in manager.sentinels
        )
        return f"{pool.service_name}@sentinel", (pool.service_name, sentinels)
    database = kwargs.get("db") or 0
    suffix = f"/{database}" if database else ""
    if "path" in kwargs:
        return f"{kwargs['path']}{suffix}", str(kwargs["path"])
    host, port = kwargs.get("host", "localhost"), kwargs.get("port", 6379)
    shown = f"[{host}]" if ":" in str(host) else host
    return f"{shown}:{port}{suffix}", (host, str(port))


def _without_secrets(url: str) -> str:
    """Return a URL with only its scheme, host, port and path. The URL of a socket has no host.

    An "@" behind a "?" or a "," may be part of a password. If there is such an "@", "…" replaces
    everything after the scheme.
    """
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    place, _, query = rest.partition("?")
    # The URLs of some other clients have settings behind a comma, the password among them.
    place, _, settings = place.partition(",")
    shown = "…" if "@" in settings + query else place.rpartition("@")[2]
    if scheme == "unix" and shown != "…":
        # Without the "@", the credentials would be in the place of the host.
        shown = "".join(shown.partition("/")[1:])
    return f"{scheme}{separator}{shown}"[:80]


def plain(error: Exception, secret: bool = False) -> str:
    """Describe a mistake in the settings, either in our words or in the words of redis-py.

    If `secret` is True, the name of an unknown option is left out. The name may be the part of a
    password that follows a "&".
    """
    text = str(error)
    # This message of Python quotes the port, which may be the beginning of a password.
    if text.startswith("Port could not be cast"):
        return (
            "its port is not a number; percent-encode '/', '?' and '#' in a user name or password"
        )
    marker = "unexpected keyword argument "
    if marker not in text:
        return text
    return (
        "unknown option; percent-encode '&' in a password"
        if secret
        else f"unknown option {text.split(marker)[1]}"
    )
