"""A primary, its replica and a Sentinel that watches them, on loopback; a failover is real and
takes about a second.
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
    """`with SentinelSet() as watched:` then
    `redis.asyncio.Sentinel([watched.address]).master_for(watched.name)`.

    Attributes:
        name: The service's name.
        primary: The first primary.
        replica: The server that takes over.
    """

    name = "main"

    def __init__(self) -> None:
        self._port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="sentinel-"))
        self._child: Child | None = None
        # A replica would otherwise wait five seconds for others to share the transfer.
        self.primary = LocalServer(["--repl-diskless-sync-delay", "0"])
        self.replica = LocalServer()

    @property
    def address(self) -> tuple[str, int]:
        """Where the Sentinel listens."""
        return "127.0.0.1", self._port

    def failover(self) -> None:
        """Kill the primary, and return when the Sentinel names the replica and that one takes
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
            f"sentinel down-after-milliseconds {self.name} 300\n"
            f"sentinel failover-timeout {self.name} 2000\n"
        )
        self._child = Child([str(find_server()), str(config), "--sentinel"], self._folder / "log")
        # It can only promote a replica that it has heard of.
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
        # RESP2, and not the client's own method for it: the same flat list on every version of
        # redis-py.
        with redis.Redis(port=self._port, decode_responses=True, protocol=2) as client:
            answer = client.execute_command(  # type: ignore[no-untyped-call,unused-ignore]
                "SENTINEL", "MASTER", self.name
            )
        return dict(zip(answer[::2], answer[1::2], strict=True))


def _await(condition: Callable[[], bool], within: float = 15.0) -> None:
    end = time.monotonic() + within
    while True:
        try:
            if condition():
                return
        except redis.ConnectionError:
            pass
        assert time.monotonic() < end, "the Sentinel's set did not come to the expected state"
        time.sleep(0.01)
