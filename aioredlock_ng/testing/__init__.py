"""Provide nodes in memory, real servers, faults and forced losses, to test code that uses locks.

The import of this package needs neither pytest nor an optional dependency. The pytest fixtures are
in `pytest_aioredlock_ng`. docs/testing.md has examples.
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
