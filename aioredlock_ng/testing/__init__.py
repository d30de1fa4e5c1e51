"""Real servers for the tests of code that uses the library; imports nothing optional and nothing of the engine."""

from .binaries import SERVER_ENV, ServerNotFound, find_server
from .nodes import LocalNodes
from .ports import free_port
from .servers import LocalServer, ServerFailed, TLSFiles

__all__ = [
    "SERVER_ENV",
    "LocalNodes",
    "LocalServer",
    "ServerFailed",
    "ServerNotFound",
    "TLSFiles",
    "find_server",
    "free_port",
]
