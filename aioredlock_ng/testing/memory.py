"""Provide nodes in the memory of this process, for tests of code that uses locks."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from aioredlock_ng import ConfigurationError, Redlock
from aioredlock_ng._nodes.memory import MemoryNode, MemoryServer
from aioredlock_ng.events import NodeDown, NodeUp
from aioredlock_ng.options import positive_seconds, whole_number
from aioredlock_ng.testing._on_loop import run_on_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioredlock_ng._nodes.port import NodeListener

__all__ = ["MemoryNodes"]

_FAULT_SECONDS = 5.0
"""Longest time in seconds that a call such as `crash` in another thread waits for the event loop.

If the loop is busy for longer, the call raises `TimeoutError`, and the fault does not happen.
"""


class MemoryNodes:
    """A set of `count` independent nodes in memory that behave like real servers.

    ```python
    nodes = MemoryNodes(3)
    async with nodes.redlock() as redlock, nodes.redlock() as another:
        # The first node hangs, and the second node is gone.
        nodes.pause(0)
        nodes.crash(1)
    ```

    Every `Redlock` of these nodes, made by `redlock()` or by `Redlock(nodes)`, has connections of
    its own. Two managers therefore exclude and notify each other like managers in two processes.
    All managers that are open at the same time must be on one event loop. The methods for faults
    are those of `LocalNodes`. Any thread may call these methods.

    Args:
        count: Number of nodes.
        latency: Seconds that each command takes to the node, and each reply back. At least 0.
        appendonly: Keep the keys over `crash` and `restart`.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(self, count: int = 3, *, latency: float = 0.0, appendonly: bool = False) -> None:
        whole_number("count", count, 1)
        self._latency = positive_seconds("latency", latency, zero=True)
        self._nodes = [
            _Node(MemoryServer(f"memory-{index}", self.clock), appendonly) for index in range(count)
        ]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ahead = 0.0

    def redlock(self, **options: Any) -> Redlock:
        """Make a manager of these nodes, with their clock and with `options` as for `Redlock`.

        The manager is not open yet.
        """
        return Redlock(self, **{"clock": self.clock} | options)

    def clock(self) -> float:
        """Return the time of these nodes in seconds, for `Redlock(clock=…)`.

        The result is the event loop's time plus the time added by `advance`.
        """
        loop = self._loop or _running_loop()
        return (time.monotonic() if loop is None else loop.time()) + self._ahead

    def advance(self, seconds: float) -> None:
        """Advance the clock of the nodes, and of every manager that uses this clock.

        The effect is as if all processes stood still for this time. Keys expire at the end of their
        ttl. A holder whose deadline has passed notices the loss when it checks its lease, and
        otherwise within half a second.

        Raises:
            ConfigurationError: `seconds` is negative or not finite.
        """
        self._do(partial(self._advance, positive_seconds("seconds", seconds, zero=True)))

    def pause(self, index: int) -> None:
        """Hang one node: it keeps its connections and answers nothing.

        Raises:
            RuntimeError: The node is not running.
        """
        self._running(index)
        self._do(self._node(index).pause)

    def resume(self, index: int) -> None:
        """Resume a hung node. The node then executes the commands that arrived meanwhile."""
        self._do(self._node(index).resume)

    def crash(self, index: int) -> None:
        """Kill one node. Its connections are lost. Its keys are lost unless `appendonly` is set.

        Raises:
            RuntimeError: The node is not running.
        """
        self._running(index)
        self._do(self._node(index).crash)

    def restart(self, index: int) -> None:
        """Start one node again. Without `appendonly` the node is empty.

        A running node is stopped first.
        """
        self._do(self._node(index).restart)

    def wipe(self, index: int | None = None) -> None:
        """Delete every key of one node, or of all nodes."""
        for node in self._nodes if index is None else [self._node(index)]:
            self._do(node.server.flush)

    def restore(self) -> None:
        """Make all nodes run and answer again after any fault. Existing keys are kept."""
        for node in self._nodes:
            self._do(node.resume if node.server.up else node.restart)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[MemoryNode]:
        """Yield a new connection to each node, for a new `Redlock`."""
        return (_Connection(self, node) for node in self._nodes)

    def __repr__(self) -> str:
        paused = [index for index, node in enumerate(self._nodes) if node.paused]
        down = [index for index, node in enumerate(self._nodes) if not node.server.up]
        return f"<MemoryNodes {len(self)} paused={paused} down={down}>"

    def _opening(self, connection: _Connection) -> None:
        """Register a connection on the running loop. Refuse a second loop."""
        loop = asyncio.get_running_loop()
        if self._live_loop() not in (None, loop):
            raise ConfigurationError(
                "these nodes are in use on another event loop; close the Redlock there, or"
                " make other nodes"
            )
        self._loop = loop
        connection.place.connections.append(connection)
        if connection.place.paused:
            connection.hang()

    def _closed(self, connection: _Connection) -> None:
        if connection in connection.place.connections:
            connection.place.connections.remove(connection)
        if not any(node.connections for node in self._nodes):
            self._loop = None

    def _live_loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the event loop of the open managers, or None without an open manager."""
        if self._loop is not None and self._loop.is_closed():
            # The event loop was closed before its managers, perhaps by an earlier test. The
            # connections of these managers are dead, so forget them.
            for node in self._nodes:
                node.forget_connections()
            self._loop = None
        return self._loop

    def _running(self, index: int) -> None:
        if not self._node(index).server.up:
            raise RuntimeError(f"node {index} is not running; restart({index}) brings it back")

    def _node(self, index: int) -> _Node:
        return self._nodes[whole_number("index", index, 0, len(self._nodes) - 1)]

    def _advance(self, seconds: float) -> None:
        self._ahead += seconds
        for node in self._nodes:
            # A call of `keys` deletes the expired keys, and so notifies the waiters.
            node.server.keys()

    def _do(self, fault: Callable[[], object]) -> None:
        """Run a fault on the event loop of the managers, because their connections belong to it."""
        loop = self._live_loop()
        if loop is None or loop is _running_loop():
            fault()
        elif loop.is_running():
            run_on_loop(loop, fault, _FAULT_SECONDS)
        else:
            # The loop does not run now, for example between two fixtures. So the fault waits until
            # the loop runs again. Another thread may start the loop at any time, so the call must
            # be thread-safe and wake the loop.
            loop.call_soon_threadsafe(fault)


class _Node:
    """The memory of one node, and the open connections to it."""

    def __init__(self, server: MemoryServer, appendonly: bool) -> None:
        self.server = server
        self.connections: list[_Connection] = []
        self.paused = False
        self._appendonly = appendonly

    def pause(self) -> None:
        self.paused = True
        for connection in self.connections:
            connection.hang()

    def resume(self) -> None:
        self.paused = False
        for connection in self.connections:
            connection.resume()

    def crash(self) -> None:
        self.server.up = False
        for connection in self.connections:
            connection.disconnect()
        self.resume()
        self.server.restart(forget=not self._appendonly)

    def restart(self) -> None:
        if self.server.up:
            self.crash()
        self.server.up = True
        for connection in self.connections:
            connection.connect()

    def forget_connections(self) -> None:
        for connection in self.connections:
            self.server.detach(connection)
        self.connections.clear()


class _Connection(MemoryNode):
    """The connection of one manager to one node.

    The connection reports its loss and its return like a connection to a real server.
    """

    def __init__(self, nodes: MemoryNodes, place: _Node) -> None:
        super().__init__(place.server, lambda: nodes._latency)
        self.place = place
        self._nodes = nodes

    async def open(
        self, index: int, listener: NodeListener, clock: Callable[[], float], node_timeout: float
    ) -> None:
        self._nodes._opening(self)
        await super().open(index, listener, clock, node_timeout)

    async def aclose(self, within: float) -> None:
        try:
            await super().aclose(within)
        finally:
            self._nodes._closed(self)

    def connect(self) -> None:
        before = self.ready
        super().connect()
        if self.ready and not before and self._listener is not None:
            self._listener.emit(NodeUp(self.address, "memory"))

    def disconnect(self) -> None:
        before = self.ready
        super().disconnect()
        if before and self._listener is not None:
            self._listener.emit(NodeDown(self.address, "connection cut"))


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
