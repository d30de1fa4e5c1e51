"""Describe a Redis service that Sentinels watch. No connection is opened."""

from __future__ import annotations

import re
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Sentinel", "SentinelConfigError"]

_URL = re.compile(r"^rediss?://.*:\d+/\d?\??.*$")

_PORT = 26379

_Number = TypeVar("_Number", int, float)


class SentinelConfigError(Exception):
    """The arguments of a `Sentinel` are invalid or incomplete."""


class Sentinel:
    """A node of an `Aioredlock` that is the primary of a service.

    For each new connection, the Sentinels are asked for the address of the primary. The arguments
    are those of aioredlock.

    Args:
        connection: Addresses of the Sentinels. A dict has `host` and perhaps `port`, `master`,
            `password`, `db`, `ssl` and `timeout`. A URL looks like
            `redis://:password@host:26379/0?master=name`. A (host, port) tuple and a list of tuples
            are possible as well.
        master: Name of the service. This argument and the arguments below override the values in
            `connection`.
        password: Password of the primary.
        db: Database of the primary.
        ssl_context: TLS to the primary: an `ssl.SSLContext`, or True for the system's certificates.

    Raises:
        SentinelConfigError: There is no address or no service, a URL cannot be read, or a port,
            database or timeout is not a number.
    """

    def __init__(
        self,
        connection: Mapping[str, Any] | str | tuple[str, int] | Sequence[tuple[str, int]],
        master: str | None = None,
        password: str | None = None,
        db: int | None = None,
        ssl_context: ssl.SSLContext | bool | None = None,
    ) -> None:
        addresses, settings = _parsed(connection)
        self.connection: list[tuple[str, int]] = addresses
        found = master or settings.get("master")
        if found is None:
            raise SentinelConfigError("Sentinel needs the name of the service: pass master='name'")
        self.master = str(found)
        self.password: str | None = settings.get("password") if password is None else password
        self.db = _number(int, "db", settings.get("db") or 0) if db is None else db
        self.ssl: ssl.SSLContext | bool | None = (
            settings.get("ssl") if ssl_context is None else ssl_context
        )
        self.timeout = _number(float, "timeout", settings.get("timeout") or 0.2)

    def __repr__(self) -> str:
        """Show service and addresses, without the password."""
        return (
            f"<Sentinel {self.master!r} at"
            f" {', '.join(f'{host}:{port}' for host, port in self.connection)}>"
        )


def _parsed(connection: object) -> tuple[list[tuple[str, int]], dict[str, Any]]:
    if isinstance(connection, dict):
        if "host" not in connection:
            raise SentinelConfigError("a dict for a Sentinel needs 'host'")
        return [_address((connection["host"], connection.get("port", _PORT)))], dict(connection)
    if isinstance(connection, str) and _URL.match(connection):
        with suppress(ValueError):
            url = urlsplit(connection)
            query: dict[str, Any] = {key: values[0] for key, values in parse_qs(url.query).items()}
            path = url.path.strip("/")
            settings: dict[str, Any] = {
                "db": int(path) if path.isdecimal() else 0,
                "password": url.password,
            }
            if url.scheme == "rediss":
                settings["ssl"] = _context(query.pop("ssl_cert_reqs", ""))
            return [(url.hostname or "localhost", url.port or _PORT)], settings | query
        # The error must not show the text, because any part of the text may belong to a password.
        # The error is raised outside of the `with`, so that it has no context that shows the text.
        raise SentinelConfigError(
            "a Sentinel's URL cannot be read; percent-encode '/', '[' and ']' in a password"
        )
    if isinstance(connection, tuple):
        return [_address(connection)], {}
    if isinstance(connection, list) and connection:
        return [_address(given) for given in connection], {}
    raise SentinelConfigError(
        "Sentinel takes a dict with 'host', a URL with port and database"
        " (redis://host:26379/0?master=name), a (host, port) tuple or a list of those"
    )


def _address(given: object) -> tuple[str, int]:
    match given:
        case (str(host), port) if host:
            number = _number(int, "port", port)
            if 0 < number < 65_536:
                return host, number
    raise SentinelConfigError(
        "the address of a Sentinel must be a host and a port from 1 to 65535:"
        f" ('localhost', {_PORT})"
    )


def _number(kind: Callable[[Any], _Number], name: str, value: object) -> _Number:
    with suppress(TypeError, ValueError, OverflowError):
        return kind(value)
    # The error must not show the value, which may be a part of a URL with a password. The error is
    # raised outside of the `with`, so that it has no context that shows the value.
    raise SentinelConfigError(f"the {name} of a Sentinel is not a number")


def _context(verify_mode: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    modes = {mode.name: mode for mode in ssl.VerifyMode}
    if (mode := modes.get(verify_mode.upper())) is not None:
        context.check_hostname = context.check_hostname and mode is not ssl.CERT_NONE
        context.verify_mode = mode
    return context
