"""List the locks of the sale, and the environment of each.

Nothing is installed into the environment of the caller.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.environments import ROOT, python_with

__all__ = ["ALL", "ONE_BY_ONE", "OURS", "WEB", "Contestant", "named", "python", "variables"]

# All contestants use the same web server. It is the fastest set-up of uvicorn, so that the figures
# depend on the locks as much as possible.
_SERVER: Final = (
    "fastapi==0.165.0",
    "uvicorn==0.54.0",
    "uvloop==0.23.0",
    "httptools==0.9.0",
    "hiredis==3.5.0",
)
WEB: Final = ("redis==8.1.0", "anyio==4.16.0")
"""The requirements of most contestants beside the web server."""

_DISTUTILS: Final = "setuptools<80"


@dataclass(frozen=True, slots=True)
class Contestant:
    """One lock and its use by the shop.

    Attributes:
        name: The name on the command line and in the tables.
        guard: The module of `guards`.
        nodes: Number of lock servers.
        settings: Arguments for `opened` of that module.
        polls: True if waiting buyers poll the lock.
        workers: The largest number of the shop's processes. None for that of the sale.
        requirements: Packages of its environment, beside those of the web server.
    """

    name: str
    guard: str
    nodes: int
    settings: dict[str, Any] = field(default_factory=dict)
    polls: bool = True
    workers: int | None = None
    requirements: tuple[str, ...] = WEB

    @property
    def environment(self) -> str:
        """The name of the environment. Contestants with the same requirements share one."""
        return "web" if self.requirements == WEB else f"web-{self.name}"


def python(contestant: Contestant, *, here: bool = False) -> Path:
    """Return the interpreter of a contestant's environment, or the running one with `here`.

    The environment is made if it is missing.

    Raises:
        subprocess.CalledProcessError: The requirements could not be installed.
    """
    if here:
        return Path(sys.executable)
    return python_with(contestant.environment, (*_SERVER, *contestant.requirements))


def variables() -> dict[str, str]:
    """Return the environment variables of the programs.

    The checkout can be imported, and Python's variables of the caller are left out.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return kept | {"PYTHONPATH": str(ROOT)}


def _getset(name: str, **waiting: Any) -> Contestant:
    return Contestant(f"GETSET, {name}", "classic", 1, {"kind": "getset", **waiting})


ONE_BY_ONE: Final = Contestant("asyncio.Lock, 1 worker", "in_process", 0, polls=False, workers=1)

OURS: Final = Contestant("ours, 5 nodes", "ours", 5, polls=False)

ALL: Final = (
    Contestant("no lock", "nothing", 0, polls=False),
    ONE_BY_ONE,
    _getset("no sleep"),
    _getset("2 s", delay=2.0),
    _getset("0.1 s", delay=0.1),
    _getset("random pause, 30 tries", delay=0.1, random_pause=True, tries=30),
    Contestant("SET NX EX, 0.1 s", "classic", 1, {"kind": "setnx-ex", "delay": 0.1}),
    Contestant("Redlock in sequence", "sequential", 5, {"delay": 0.2, "tries": 4}),
    Contestant("redis-py", "redis_py", 1),
    Contestant("pottery", "peer_pottery", 5, requirements=("pottery==3.0.1", "redis==8.1.0")),
    Contestant(
        "redlock-ng", "peer_redlock_ng", 5, requirements=("redlock-ng==2.0.4", "redis==5.3.1")
    ),
    Contestant(
        "aioredlock",
        "peer_aioredlock",
        5,
        requirements=("aioredlock==0.7.3", "aioredis==1.3.1", _DISTUTILS),
    ),
    Contestant("ours, 1 node", "ours", 1, polls=False),
    Contestant("ours, 3 nodes", "ours", 3, polls=False),
    OURS,
)
"""All contestants, in the order in which they take turns."""


def named(names: list[str]) -> list[Contestant]:
    """Return the contestants whose names begin with one of these, in the order of `ALL`.

    Raises:
        ValueError: No contestant has a name that begins like this.
    """
    if unknown := [name for name in names if not any(each.name.startswith(name) for each in ALL)]:
        raise ValueError(
            f"nobody is called {', '.join(unknown)}; there are: "
            f"{'; '.join(each.name for each in ALL)}"
        )
    return [each for each in ALL if each.name.startswith(tuple(names))]
