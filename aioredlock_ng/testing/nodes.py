"""Run several real servers on loopback, each an independent node."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from aioredlock_ng import Redlock
from aioredlock_ng.options import whole_number

from ._startable import Startable
from .servers import LocalServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import Self

__all__ = ["LocalNodes"]


class LocalNodes(Startable):
    """A set of `count` independent servers, started together, for a test or a demo.

    ```python
    with LocalNodes(5) as nodes:
        async with Redlock(nodes.urls) as redlock:
            # The first node hangs, and the second node is gone.
            nodes.pause(0)
            nodes.crash(1)
    ```

    Starts, stops and faults block the calling thread, usually for some milliseconds.

    Args:
        count: Number of servers.
        extra_args: Further arguments of each server.
        binary: The server program. Default: the result of `find_server`.
        appendonly: Keep the data over `crash` and `restart`.
        unix_socket: Listen on Unix sockets only.
        password: The password that every client needs.

    Raises:
        ConfigurationError: `count` is invalid. A method raises this error if a node's index is
            invalid.
    """

    def __init__(
        self,
        count: int = 5,
        *,
        extra_args: Sequence[str] = (),
        binary: Path | None = None,
        appendonly: bool = False,
        unix_socket: bool = False,
        password: str | None = None,
    ) -> None:
        whole_number("count", count, 1)
        self._servers = [
            LocalServer(
                extra_args,
                binary=binary,
                appendonly=appendonly,
                unix_socket=unix_socket,
                password=password,
            )
            for _ in range(count)
        ]

    @property
    def urls(self) -> list[str]:
        """URL of each node, in order."""
        return [server.url for server in self._servers]

    def redlock(self, **options: Any) -> Redlock:
        """Make a manager of these nodes, with `options` as for `Redlock`.

        The manager is not open yet.
        """
        return Redlock(self.urls, **options)

    def start(self) -> Self:
        """Start all servers at the same time.

        If one server cannot start, the other servers are stopped, and the error is raised.

        Raises:
            RuntimeError: A server is running already. No server is started or stopped.
            ServerNotFound: There is no server program on this machine.
            ServerFailed: A server did not start.
        """
        if any(server.running for server in self):
            raise RuntimeError("a server is running already; restore() starts the others")
        try:
            self._all(LocalServer.start)
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        """Stop every server."""
        self._all(LocalServer.stop)

    def close(self) -> None:
        """Stop every server and delete its files."""
        self._all(LocalServer.close)

    def pause(self, index: int) -> None:
        """Hang one node, as `LocalServer.pause` does."""
        self._node(index).pause()

    def resume(self, index: int) -> None:
        """Resume a hung node, as `LocalServer.resume` does."""
        self._node(index).resume()

    def crash(self, index: int) -> None:
        """Kill one node, as `LocalServer.crash` does."""
        self._node(index).crash()

    def restart(self, index: int) -> None:
        """Start one node again on its port, as `LocalServer.restart` does."""
        self._node(index).restart()

    def wipe(self, index: int | None = None) -> None:
        """Delete every key of one node, or of all nodes."""
        if index is None:
            self._all(LocalServer.wipe)
        else:
            self._node(index).wipe()

    def restore(self) -> None:
        """Make all nodes run and answer again after any fault. Existing keys are kept."""
        for server in self._servers:
            if not server.running:
                server.start()
            else:
                server.resume()

    def __len__(self) -> int:
        return len(self._servers)

    def __iter__(self) -> Iterator[LocalServer]:
        return iter(self._servers)

    def __getitem__(self, index: int) -> LocalServer:
        return self._servers[index]

    def _node(self, index: int) -> LocalServer:
        return self._servers[whole_number("index", index, 0, len(self._servers) - 1)]

    def _all(self, method: Callable[[LocalServer], object]) -> None:
        with ThreadPoolExecutor(len(self._servers)) as threads:
            list(threads.map(method, self._servers))
