"""A release that a server refuses for now is still owed, and delivered when the server is free
again.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aioredlock_ng import Redlock
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer


def _ask(url: str, *words: bytes) -> bytes:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as sock:
        sock.sendall(
            b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)])
        )
        return sock.recv(4096)


async def test_a_release_refused_by_a_busy_server_is_delivered_when_it_is_free(
    start_server: Callable[..., LocalServer],
) -> None:
    server = start_server(["--lua-time-limit", "50"])
    async with Redlock([server.url], node_timeout=1.0, ttl=60) as redlock:
        lease = await redlock.lock("a").acquire()
        busy = threading.Thread(target=_ask, args=(server.url, b"EVAL", b"while true do end", b"0"))
        busy.start()
        try:
            await eventually(lambda: _ask(server.url, b"PING").startswith(b"-BUSY"))
            await lease.release()
        finally:
            _ask(server.url, b"SCRIPT", b"KILL")
            busy.join(30)
        await eventually(lambda: _ask(server.url, b"EXISTS", b"a") == b":0\r\n")
