"""Describe the machine and the versions of a run, without paths, users and host names."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from aioredlock_ng.testing.binaries import find_server
from benchmarks.environments import ROOT

__all__ = ["describe"]

_PACKAGES = ("aioredlock-ng", "redis", "hiredis", "anyio")


def describe() -> dict[str, Any]:
    """Return the machine and the versions of the software."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "python": sys.version.split()[0],
        "server": _first_line([str(find_server()), "--version"]),
        "packages": {name: _version(name) for name in _PACKAGES},
        "commit": _first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError as error:
        return type(error).__name__
    lines = done.stdout.splitlines()
    return lines[0].strip() if lines else "unknown"
