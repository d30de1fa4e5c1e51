"""Choose TCP ports that stay free while their server is down."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["free_port"]

# These ports are below the range from which kernels choose ports for outgoing connections (Linux
# 32768+, BSD and macOS 49152+). So no outgoing connection takes the port of a crashed server before
# its restart, and a client that reconnects cannot connect to itself.
_PORTS = range(20_000, 32_000)

_SHARES = 64
"""Number of shares into which the ports are divided. The share of a process depends on its process
id. Without shares, one process could take the port of another process's crashed server. A client
would then connect to the wrong server."""

# The ports of this process's share, by process id: a forked child needs a share of its own.
_own: dict[int, Iterator[int]] = {}


def free_port() -> int:
    """Return a loopback TCP port on which nobody listens now.

    A process gets the same port again only after all other ports of its share. Another process may
    still take the port before the caller does, so the caller must be ready to try again.
    """
    process = os.getpid()
    if process not in _own:
        share = [port for port in _PORTS if port % _SHARES == process % _SHARES]
        secrets.SystemRandom().shuffle(share)
        _own[process] = itertools.cycle(share)
    for port in _own[process]:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a cycle does not end")
