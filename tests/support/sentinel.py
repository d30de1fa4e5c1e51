"""A primary, its replica, and a Sentinel that watches them, on loopback.

A failover is real, and takes about four seconds.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import redis
import redis.sentinel

from aioredlock_ng.testing import LocalServer, find_server, free_port
from aioredlock_ng.testing._child import Child

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

__all__ = ["SentinelSet"]


class SentinelSet:
    """A primary, its replica and their Sentinel.

    Use `with SentinelSet() as watched:`, and then
    `redis.asyncio.Sentinel([watched.address]).master_for(watched.name)`.

    Attributes:
        name: The name of the service.
        primary: The first primary.
        replica: The server that takes over.
    """

    name = "main"

    def __init__(self) -> None:
        self._port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="sentinel-"))
        self._child: Child | None = None
        # Without this option, the transfer begins five seconds later, so that other replicas can
        # share it.
        self.primary = LocalServer(["--repl-diskless-sync-delay", "0"])
        self.replica = LocalServer()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the Sentinel."""
        return "127.0.0.1", self._port

    def failover(self) -> None:
        """Kill the primary. Return when the Sentinel names the replica, and the replica accepts
        writes.
        """
        self.primary.crash()
        _await(lambda: self._asked()["port"] == str(self.replica.port))
        _await(lambda: self.replica.info()["role"] == "master")

    def __enter__(self) -> Self:
        self.primary.start()
        self.replica.start()
        self.replica.command("REPLICAOF", "127.0.0.1", str(self.primary.port))
        _await(lambda: self.replica.info().get("master_link_status") == "up")
        config = self._folder / "sentinel.conf"
        config.write_text(
            f"port {self._port}\nbind 127.0.0.1\ndir {self._folder}\n"
            f"sentinel monitor {self.name} 127.0.0.1 {self.primary.port} 1\n"
            # A busy machine may pause the primary for two seconds without a failure.
            f"sentinel down-after-milliseconds {self.name} 3000\n"
            f"sentinel failover-timeout {self.name} 2000\n"
        )
        self._child = Child([str(find_server()), str(config), "--sentinel"], self._folder / "log")
        # The Sentinel can only promote a replica that it has found.
        _await(lambda: self._asked()["num-slaves"] == "1")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._child is not None:
            self._child.kill()
        self.primary.close()
        self.replica.close()
        shutil.rmtree(self._folder)

    def _asked(self) -> dict[str, str]:
        # With RESP2 and the plain command, every version of redis-py returns the same flat list.
        with redis.Redis(port=self._port, decode_responses=True, protocol=2) as client:
            answer = client.execute_command(  # type: ignore[no-untyped-call,unused-ignore]
                "SENTINEL", "MASTER", self.name
            )
        return dict(zip(answer[::2], answer[1::2], strict=True))


def _await(condition: Callable[[], bool], within: float = 60.0) -> None:
    end = time.monotonic() + within
    while True:
        try:
            if condition():
                return
        except redis.ConnectionError:
            pass
        assert time.monotonic() < end, "the Sentinel and its servers did not get ready in time"
        time.sleep(0.01)
