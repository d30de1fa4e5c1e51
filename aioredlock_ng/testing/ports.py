"""Choose TCP ports that stay free while their server is down."""

from __future__ import annotations

import contextlib
import secrets
import socket

__all__ = ["free_port"]

# These ports are below the range from which kernels choose ports for outgoing connections (Linux
# 32768+, BSD and macOS 49152+). No other program then takes the port of a crashed server before its
# restart, and a client that reconnects cannot connect to itself.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a loopback TCP port on which nobody listens now.

    Another process may still take it first, so the caller must be ready to try again.
    """
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
