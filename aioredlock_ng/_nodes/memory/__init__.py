"""The in-process node: a server that lives in this process, and a connection to it."""

from aioredlock_ng._nodes.memory.keyspace import Connection
from aioredlock_ng._nodes.memory.memory_node import MemoryNode
from aioredlock_ng._nodes.memory.server import MemoryServer

__all__ = ["Connection", "MemoryNode", "MemoryServer"]
