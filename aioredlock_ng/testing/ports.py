"""Chooses TCP ports that stay ours while nobody listens on them; never holds one open."""

from __future__ import annotations

import contextlib
import secrets
import socket

__all__ = ["free_port"]

# Below the range from which kernels take ports for outgoing connections (Linux 32768+, BSD and macOS 49152+): nobody
# takes the port of a crashed server before its restart, and a client that keeps reconnecting cannot connect to itself.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a loopback TCP port that nobody listens on now; another process may still be quicker: be ready to try again."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
