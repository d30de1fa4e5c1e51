"""List the measured clients, and the environment of each.

A client with requirements runs in a virtual environment of its own. Nothing is installed into the
environment of the caller.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .environments import ROOT, python_with

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ALL",
    "BARE",
    "BARE_THREAD",
    "FLOOR",
    "FLOOR_IN_LINE",
    "OURS",
    "PORTAL",
    "PYTHON_REDIS_LOCK",
    "PY_REDIS_SEMAPHORE",
    "REDIS_SEMAPHORE_ASYNC",
    "REDLOCK_PY",
    "SEMAPHORE",
    "STEINDAMM",
    "THREADS",
    "THREADSAFE",
    "THREADS_BARE",
    "Client",
    "labelled",
    "named",
]

_DRIVERS: Final = Path(__file__).parent / "drivers"

# aioredlock and aioredis import distutils. Python 3.12 removed it, but older versions of setuptools
# contain it.
_DISTUTILS: Final = "setuptools<80"


@dataclass(frozen=True, slots=True)
class Client:
    """Describe one client and how to run its driver.

    Attributes:
        name: The name in tables and on the command line.
        driver: The file in `drivers/`.
        requirements: Packages from PyPI for an environment of its own. A client without
            requirements runs in the caller's environment.
        note: An explanation for readers of its figures.
        source: The tree of the library for a client in the caller's environment.
    """

    name: str
    driver: str
    requirements: tuple[str, ...] = ()
    note: str = ""
    source: Path = ROOT

    def command(self) -> list[str]:
        """Return the command line of the driver, without its task.

        The environment of the client is created if it is missing.

        Raises:
            subprocess.CalledProcessError: The requirements could not be installed.
        """
        python = python_with(self.name, self.requirements) if self.requirements else sys.executable
        return [str(python), str(_DRIVERS / self.driver)]

    def variables(self) -> dict[str, str]:
        """Return the environment variables of the driver.

        The checkout is on `PYTHONPATH` only for clients that run in the caller's environment.
        """
        variables = {
            key: value for key, value in os.environ.items() if not key.startswith("PYTHON")
        }
        if not self.requirements:
            variables["PYTHONPATH"] = str(self.source)
        return variables


OURS: Final = Client("ours", "drive_ours.py", note="every option at its default")
SEMAPHORE: Final = Client(
    "semaphore", "drive_semaphore.py", note="ours: a semaphore with a limit of 8 instead of a lock"
)
FLOOR: Final = Client(
    "floor", "drive_floor.py", note="no lock library: the speed limit, without any safety"
)
BARE: Final = Client(
    "bare",
    "drive_bare.py",
    note="no lock library: plain SET NX PX and a compare-and-delete on all nodes",
)
BARE_THREAD: Final = Client(
    "bare in a thread",
    "drive_bare_thread.py",
    note="the bare client on an event loop in another thread",
)
FLOOR_IN_LINE: Final = Client(
    "floor", "line_floor.py", note="the same with a queue before it, for the waiting lines"
)
THREADS: Final = Client(
    "ours", "threads_ours.py", note="aioredlock_ng.sync, every option at its default"
)
PORTAL: Final = Client(
    "anyio's portal", "threads_portal.py", note="our asyncio API, called by anyio's blocking portal"
)
THREADSAFE: Final = Client(
    "run_coroutine_threadsafe",
    "threads_threadsafe.py",
    note="our asyncio API, called by asyncio.run_coroutine_threadsafe",
)
THREADS_BARE: Final = Client(
    "bare in a thread",
    "threads_bare.py",
    note="the bare client on an event loop in another thread, called by threads",
)
PYTHON_REDIS_LOCK: Final = Client(
    "python-redis-lock",
    "drive_python_redis_lock.py",
    ("python-redis-lock==4.0.0", "redis==8.1.0", "hiredis==3.5.0"),
    "threads, one node only; it takes part in the waiting lines and in sync",
)
REDLOCK_PY: Final = Client(
    "redlock-py",
    "threads_redlock_py.py",
    ("redlock-py==1.0.8", "redis==8.1.0", "hiredis==3.5.0"),
    "threads, all nodes one after the other; it takes part in sync only",
)
STEINDAMM: Final = Client(
    "steindamm",
    "drive_steindamm.py",
    ("steindamm[redis]==0.11.1", "redis==8.1.0", "hiredis==3.5.0"),
    "one node only; it takes part in semaphore only",
)
PY_REDIS_SEMAPHORE: Final = Client(
    "py-redis-semaphore",
    "drive_py_redis_semaphore.py",
    ("py-redis-semaphore==0.2.0", "redis==8.1.0", "hiredis==3.5.0"),
    "one node only; it takes part in semaphore only",
)
REDIS_SEMAPHORE_ASYNC: Final = Client(
    "redis-semaphore-async",
    "drive_redis_semaphore_async.py",
    ("redis-semaphore-async==0.0.4", "redis==5.2.1", "hiredis==3.5.0"),
    "one node only; it takes part in semaphore only",
)

ALL: Final = (
    OURS,
    BARE,
    FLOOR,
    Client(
        "aioredlock",
        "drive_aioredlock.py",
        ("aioredlock==0.7.3", "aioredis==1.3.1", "hiredis==3.5.0", _DISTUTILS),
        "in its faster mode, without its watchdog",
    ),
    Client("pottery", "drive_pottery.py", ("pottery==3.0.1", "redis==8.1.0", "hiredis==3.5.0")),
    Client(
        "redlock-ng", "drive_redlock_ng.py", ("redlock-ng==2.0.4", "redis==5.3.1", "hiredis==3.5.0")
    ),
    Client(
        "redis-py",
        "drive_redis_py.py",
        ("redis==8.1.0", "hiredis==3.5.0"),
        "one node only: a fifth of the work and no majority",
    ),
)
"""All clients, in the order in which they take turns."""


def named(names: list[str]) -> list[Client]:
    """Return the clients with these names, in the order of `ALL`.

    Raises:
        ValueError: A name is unknown.
    """
    if unknown := set(names) - {client.name for client in ALL}:
        raise ValueError(f"unknown clients: {', '.join(sorted(unknown))}")
    return [client for client in ALL if client.name in names]


def labelled(path: Path, taken: Iterable[str]) -> str:
    """Return the name of a tree of the library in the tables.

    The name is the commit of the tree. It is the name of the folder if the folder is not the root
    of a repository.
    """
    label = path.resolve().name
    with contextlib.suppress(OSError):
        asked = ["git", "-C", str(path), "rev-parse", "--show-toplevel", "--short", "HEAD"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
        # A folder inside another repository would get the commit of that repository.
        if len(said) == 2 and Path(said[0]).resolve() == path.resolve():
            label = said[1]
    return f"{label} ({path.resolve().name})" if label in taken else label
