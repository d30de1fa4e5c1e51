"""Managers over in-memory servers, on a virtual clock.

No code of a rig opens a connection, or waits for real time.
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
"""Seconds that each command and each reply takes, unless a test sets another time."""

NODE_TIMEOUT = 0.1
"""The default `node_timeout` of `Redlock`, in seconds."""


def occupied(lines: Lines) -> list[Line[LeaseRecord]]:
    """Return the lines in use.

    A manager keeps some of the others for the next locks of their names.
    """
    return [line for line in lines._all() if line.occupied]


class Process:
    """One manager with its connections, like one process of a fleet."""

    def __init__(self, redlock: Redlock, nodes: list[MemoryNode]) -> None:
        self.redlock = redlock
        self.nodes = nodes
        self.lock = redlock.lock

    def questions(self) -> list[Command]:
        """Return a list that gets the commands that the process sends from now on, once for each
        node.
        """
        asked: list[Command] = []
        for node in self.nodes:

            def ask(sink: Sink, index: int, ask: Callable[[Sink, int], None] = node.ask) -> None:
                assert isinstance(sink.command, Command)
                asked.append(sink.command)
                ask(sink, index)

            node.ask = ask  # type: ignore[method-assign]
        return asked


class Rig:
    """Some servers, and the processes that use them. All processes see the faults of a server.

    Attributes:
        servers: The memory of each server.
        ways: Seconds that one way to each server takes. A test may change them at any time.
        processes: All managers, with their connections.
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
        """Open one more manager.

        Args:
            near: Index of a server to which the ways are a fifth as long.
            away: Factor by which all ways are longer.
            **options: Options of `Redlock`.
        """
        process = self.new_process(near=near, away=away, **options)
        await process.redlock.open()
        return process

    def new_process(self, *, near: int | None = None, away: float = 1.0, **options: Any) -> Process:
        """Make one more manager, which is not open yet. The arguments are those of `process`."""
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
        """Stop servers from executing commands. Commands that are sent to them wait."""
        for index in indexes:
            self._hung.add(index)
            for process in self.processes:
                process.nodes[index].hang()

    def resume(self, *indexes: int) -> None:
        """Let these servers, or all that hang, execute the waiting commands in the order of
        sending.
        """
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
        """Connect every process to these servers again."""
        for process in self.processes:
            for index in indexes:
                process.nodes[index].connect()

    def stop(self, *indexes: int) -> None:
        """Shut servers down. They keep their memory."""
        for index in indexes:
            self.servers[index].up = False
        self.disconnect(*indexes)

    def start(self, *indexes: int) -> None:
        """Start servers again."""
        for index in indexes:
            self.servers[index].up = True
        self.connect(*indexes)

    def refuse(self, words: str | None, *indexes: int) -> None:
        """Let servers refuse all commands with this message. None ends the refusals."""
        for index in indexes:
            self.servers[index].refuses = words

    def keys(self) -> list[set[bytes]]:
        """Return the keys of each server."""
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
        """Let all servers execute again, and close every manager."""
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
