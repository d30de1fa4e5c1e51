"""Managers over in-memory servers on a virtual clock; never opens a connection and never waits for
real.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING, Any

from aioredlock_ng import Redlock
from aioredlock_ng._nodes.memory import MemoryNode, MemoryServer
from aioredlock_ng._scripts import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._engine.waiting.line import Line
    from aioredlock_ng._engine.waiting.lines import Lines
    from aioredlock_ng._nodes.port import Sink

__all__ = ["NODE_TIMEOUT", "WAY", "Process", "Rig", "occupied"]

WAY = 0.001
"""Seconds that each way of each command takes unless a test says otherwise."""

NODE_TIMEOUT = 0.1
"""The default of `Redlock`."""


def occupied(lines: Lines) -> list[Line[LeaseRecord]]:
    """Return the lines in use.

    A manager keeps some of the others for the next locks of their names.
    """
    return [line for line in lines._all() if line.occupied]


class Process:
    """One manager with its connections, as one process of a fleet would have."""

    def __init__(self, redlock: Redlock, nodes: list[MemoryNode]) -> None:
        self.redlock = redlock
        self.nodes = nodes
        self.lock = redlock.lock

    def questions(self) -> list[Command]:
        """Return the list of the commands that the process sends from now on, node by node."""
        asked: list[Command] = []
        for node in self.nodes:

            def ask(sink: Sink, index: int, ask: Callable[[Sink, int], None] = node.ask) -> None:
                assert isinstance(sink.command, Command)
                asked.append(sink.command)
                ask(sink, index)

            node.ask = ask  # type: ignore[method-assign]
        return asked


class Rig:
    """Some servers and the processes that use them; faults hit the server as every process sees it.

    Attributes:
        servers: The memory of each.
        ways: Seconds that one way to each server takes; may be changed at any time.
    """

    def __init__(self, count: int = 3) -> None:
        self.servers = [MemoryServer(f"memory-{index}") for index in range(count)]
        self.ways = [WAY] * count
        self.processes: list[Process] = []
        self._hung: set[int] = set()
        self._seeds = itertools.count(1)

    async def process(
        self, *, near: int | None = None, away: float = 1.0, **options: Any
    ) -> Process:
        """Open one more manager, so many times as far `away`, or `near` a server: its ways there
        are a fifth as long.
        """
        process = self.new_process(near=near, away=away, **options)
        await process.redlock.open()
        return process

    def new_process(self, *, near: int | None = None, away: float = 1.0, **options: Any) -> Process:
        """Make one more manager, not yet open; `near` and `away`: see `process`."""
        shares = [away / 5 if index == near else away for index in range(len(self.servers))]
        nodes = [
            MemoryNode(server, lambda i=i: self.ways[i] * shares[i])  # type: ignore[misc]
            for i, server in enumerate(self.servers)
        ]
        for index in self._hung:
            nodes[index].hang()
        clock = asyncio.get_running_loop().time
        redlock = Redlock(nodes, clock=clock, rng=random.Random(next(self._seeds)), **options)
        process = Process(redlock, nodes)
        self.processes.append(process)
        return process

    def hang(self, *indexes: int) -> None:
        """Let servers stop executing; what is sent waits for them."""
        for index in indexes:
            self._hung.add(index)
            for process in self.processes:
                process.nodes[index].hang()

    def resume(self, *indexes: int) -> None:
        """Let servers go on (none named: all that hang), in the order in which they were asked."""
        for index in indexes or tuple(self._hung):
            self._hung.discard(index)
            for process in self.processes:
                process.nodes[index].resume()

    def disconnect(self, *indexes: int) -> None:
        """Cut every process's connection to these servers."""
        for process in self.processes:
            for index in indexes:
                process.nodes[index].disconnect()

    def connect(self, *indexes: int) -> None:
        """Bring the connections back."""
        for process in self.processes:
            for index in indexes:
                process.nodes[index].connect()

    def stop(self, *indexes: int) -> None:
        """Shut servers down, without loss of memory."""
        for index in indexes:
            self.servers[index].up = False
        self.disconnect(*indexes)

    def start(self, *indexes: int) -> None:
        """Bring them up again."""
        for index in indexes:
            self.servers[index].up = True
        self.connect(*indexes)

    def refuse(self, words: str | None, *indexes: int) -> None:
        """Let servers refuse everything with these words; None: no longer."""
        for index in indexes:
            self.servers[index].refuses = words

    def keys(self) -> list[set[bytes]]:
        """The keys of each server."""
        return [set(server.keys()) for server in self.servers]

    def values(self, key: bytes) -> list[bytes | None]:
        """Return the value of a key on each server."""
        return [server.get(key) for server in self.servers]

    def occupy(
        self,
        key: bytes,
        ttl: float = 60.0,
        on: Iterable[int] | None = None,
        value: bytes = b"foreign",
    ) -> None:
        """Set a key as a client in another language would."""
        for index in range(len(self.servers)) if on is None else on:
            self.servers[index].set(key, value, ttl)

    def vacate(self, key: bytes, on: Iterable[int] | None = None) -> None:
        """Delete a key as another client would."""
        for index in range(len(self.servers)) if on is None else on:
            self.servers[index].delete(key)

    @property
    def clean(self) -> bool:
        """True when no server has any key."""
        return not any(self.keys())

    async def close(self) -> None:
        """Close every manager; servers that hang go on first."""
        self.resume()
        for process in self.processes:
            await process.redlock.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
