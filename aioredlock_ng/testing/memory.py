"""Nodes that live in this process, for tests of code that takes locks; never a server, never shared between processes."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from aioredlock_ng import ConfigurationError, Redlock
from aioredlock_ng._nodes.memory import MemoryNode, MemoryServer
from aioredlock_ng.events import NodeDown, NodeUp
from aioredlock_ng.options import positive_seconds, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioredlock_ng._nodes.port import NodeListener

__all__ = ["MemoryNodes"]

_FAULT_SECONDS = 5.0
"""A fault from another thread waits for the event loop so long: a loop that is busy for longer hangs."""


class MemoryNodes:
    """`count` independent nodes in memory that keep the same contract as real servers; the nodes of a Redlock in a test.

    ```python
    nodes = MemoryNodes(3)
    async with nodes.redlock() as redlock, nodes.redlock() as another:
        nodes.pause(0)      # hangs
        nodes.crash(1)      # gone
    ```

    Every `Redlock` that is made of them, by `redlock()` or by `Redlock(nodes)`, has connections of its own: such managers
    exclude and wake each other as those of several processes do. All that are open at one time must be on one event
    loop. The faults have the names and meanings that `LocalNodes` gives them; any thread may call them.

    Args:
        count: How many nodes.
        latency: Seconds that each way of each command takes, at least 0.
        appendonly: Keep the keys over `crash` and `restart`.

    Raises:
        ConfigurationError: An argument is unusable.
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
        """Make one more manager of these nodes, not yet open, whose clock is theirs.

        Args:
            options: Of `Redlock`.
        """
        return Redlock(self, **{"clock": self.clock} | options)

    def clock(self) -> float:
        """Seconds as these nodes count them: the event loop's time, and what `advance` added. For `Redlock(clock=…)`."""
        loop = self._loop or _running_loop()
        return (time.monotonic() if loop is None else loop.time()) + self._ahead

    def advance(self, seconds: float) -> None:
        """Let time pass for the nodes and for every manager that has their `clock`, as if all had stood still for so long.

        Keys whose time is over expire. A holder whose deadline has passed learns it as after any standstill: at once when
        it asks its lease, within half a second when it does not.

        Raises:
            ConfigurationError: `seconds` is no finite number, zero or more: time does not go back.
        """
        self._do(partial(self._advance, positive_seconds("seconds", seconds, zero=True)))

    def pause(self, index: int) -> None:
        """Hang one node: it keeps its connections and answers nothing."""
        self._running(index)
        self._do(self._node(index).pause)

    def resume(self, index: int) -> None:
        """Let a hung node run on; it then does what was asked meanwhile."""
        self._do(self._node(index).resume)

    def crash(self, index: int) -> None:
        """Kill one node: its connections are lost, and its keys unless `appendonly`."""
        self._running(index)
        self._do(self._node(index).crash)

    def restart(self, index: int) -> None:
        """Bring one node back, empty unless `appendonly`; one that runs is stopped before."""
        self._do(self._node(index).restart)

    def wipe(self, index: int | None = None) -> None:
        """Delete every key of one node, or of all."""
        for node in self._nodes if index is None else [self._node(index)]:
            self._do(node.server.flush)

    def restore(self) -> None:
        """Make all nodes run and answer again, whatever was done to them; keys stay."""
        for node in self._nodes:
            self._do(node.resume if node.server.up else node.restart)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[MemoryNode]:
        """One new connection to each node: what a `Redlock` is made of."""
        return (_Connection(self, node) for node in self._nodes)

    def __repr__(self) -> str:
        paused = [index for index, node in enumerate(self._nodes) if node.paused]
        down = [index for index, node in enumerate(self._nodes) if not node.server.up]
        return f"<MemoryNodes {len(self)} paused={paused} down={down}>"

    def _opening(self, connection: _Connection) -> None:
        """A connection is about to be made, on the running loop."""
        loop = asyncio.get_running_loop()
        if self._live_loop() not in (None, loop):
            raise ConfigurationError(
                "these nodes are in use on another event loop; close the Redlock there, or make others"
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
        """The loop of the managers that are open."""
        if self._loop is not None and self._loop.is_closed():
            # They were never closed, perhaps by an earlier test: nobody is there to be told anything.
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
            # To look is to expire what is over, and to tell who waits for it.
            node.server.keys()

    def _do(self, fault: Callable[[], object]) -> None:
        """Do it where the managers are: connections belong to their event loop."""
        loop = self._live_loop()
        if loop is None or loop is _running_loop():
            fault()
        elif loop.is_running():
            asyncio.run_coroutine_threadsafe(_done(fault), loop).result(_FAULT_SECONDS)
        else:
            # Between two runs of a loop, in a fixture perhaps: the first thing that the next run does.
            loop.call_soon(fault)


class _Node:
    """The memory of one node, and every connection that is open to it."""

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
    """One manager's connection to one of the nodes; tells that it is up or down as one to a server does."""

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


async def _done(fault: Callable[[], object]) -> None:
    fault()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
