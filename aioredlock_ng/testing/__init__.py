"""For the tests of code that takes locks: nodes in memory and real servers, with faults, and losses on purpose.

Imports nothing optional, and not pytest: its fixtures are in `pytest_aioredlock_ng`. docs/testing.md shows how to use it all.
"""

from .binaries import SERVER_ENV, ServerNotFound, find_server
from .losing import Point, lose, lose_at, lose_lock
from .memory import MemoryNodes
from .nodes import LocalNodes
from .ports import free_port
from .servers import LocalServer, ServerFailed, TLSFiles

__all__ = [
    "SERVER_ENV",
    "LocalNodes",
    "LocalServer",
    "MemoryNodes",
    "Point",
    "ServerFailed",
    "ServerNotFound",
    "TLSFiles",
    "find_server",
    "free_port",
    "lose",
    "lose_at",
    "lose_lock",
]
