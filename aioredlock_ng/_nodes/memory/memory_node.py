"""A lock node without a network, with faults on demand.

A `MemoryNode` is one manager's connection to a `MemoryServer`. Several managers can share a set of
servers. By default, keys expire by the event loop's clock, so tests can use virtual time. The same
test suite runs against this node and against real servers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from aioredlock_ng._core.keys import message_channel
from aioredlock_ng._core.votes import Dropped, Refusal, Unsent
from aioredlock_ng._nodes.memory.server import MemoryServer
from aioredlock_ng._nodes.owed import RETRY_RELEASES
from aioredlock_ng._nodes.port import NodeState
from aioredlock_ng._scripts import Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Raw
    from aioredlock_ng._nodes.port import NodeListener, Sink

__all__ = ["MemoryNode"]


class MemoryNode:
    """One manager's connection to a `MemoryServer`.

    Args:
        server: The server, or the address of a new server.
        latency: Returns the travel time of a command or a reply, in seconds.
    """

    def __init__(
        self, server: MemoryServer | str = "memory", latency: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.server = server if isinstance(server, MemoryServer) else MemoryServer(server)
        self.address = self.server.address
        self._latency = latency
        self._arrived_at = self._answered_at = 0.0
        # Timers of the same instant fire in any order, but a connection must deliver in order. So
        # each timer handles the first entry of a queue.
        self._travelling: deque[int] = deque()
        self._inbox: deque[int] = deque()
        self._answers: deque[Callable[[], None]] = deque()
        self._waiting: dict[int, tuple[Command, Sink, int]] = {}
        self._owed: dict[bytes, Command] = {}
        self._sequence = 0
        self._hung = False
        self._refused = ""
        self._connected = False
        self._connections = 0
        self._listener: NodeListener | None = None
        self._drained = asyncio.Event()

    @property
    def ready(self) -> bool:
        return self._connected

    @property
    def tracking(self) -> bool:
        return self._connected

    @property
    def messages(self) -> bool:
        return self._connected

    def ask(self, sink: Sink, index: int) -> None:
        """Send a command, or deliver an `Unsent` if there is no connection."""
        command = sink.command
        assert isinstance(command, Command)
        if not self._connected:
            if command.owed_until is not None:
                self._owed[command.packed] = command
            sink.deliver(index, Unsent("not connected"))
            return
        self._sequence += 1
        self._waiting[self._sequence] = (command, sink, index)
        self._travelling.append(self._sequence)
        loop = asyncio.get_running_loop()
        # A connection keeps the order, so no command arrives before an earlier one.
        self._arrived_at = max(self._arrived_at, loop.time() + self._latency())
        loop.call_at(self._arrived_at, self._arrive, self._connections)

    async def open(
        self, index: int, listener: NodeListener, clock: Callable[[], float], node_timeout: float
    ) -> None:
        self._index, self._listener, self._clock = index, listener, clock
        self.connect()

    async def aclose(self, within: float) -> None:
        if self._waiting and not self._hung:
            # An event that was awaited on another loop, before an earlier close, raises an error.
            self._drained = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._drained.wait()
        self._listener = None
        self.disconnect()

    def refuse(self, reason: str) -> None:
        self._refused = reason
        self.disconnect()

    def disown(self) -> None:
        """Do nothing: a forked child has a copy of the server."""

    def state(self) -> NodeState:
        return NodeState(
            address=self.address,
            state="refused" if self._refused else "up" if self._connected else "down",
            reason=self._refused or ("" if self._connected else "not connected"),
            server="memory",
            tracking=self.tracking,
            messages=self.messages,
            pending=len(self._waiting),
            owed=len(self._owed),
            connections=self._connections,
        )

    def hang(self) -> None:
        """Stop executing commands, as a hung server does. Commands wait until `resume`."""
        self._hung = True

    def resume(self) -> None:
        """Execute the waiting commands in order, and then execute new commands again."""
        self._hung = False
        if self._connected:
            self._pay()
        while self._inbox:
            self._execute(self._inbox.popleft())

    def disconnect(self) -> None:
        """Cut the connection, and deliver a `Dropped` for each request without a reply."""
        if not self._connected:
            return
        self._connected = False
        self.server.detach(self)
        for way in (self._travelling, self._inbox, self._answers):
            way.clear()
        waiting, self._waiting = self._waiting, {}
        self._drained.set()
        for command, sink, index in waiting.values():
            if command.owed_until is not None:
                self._owed[command.packed] = command
            sink.deliver(index, Dropped("connection cut"))
        self.invalidated(None)

    def connect(self) -> None:
        """Connect if the server is up, and execute the outstanding releases.

        A hung node executes the releases only at `resume`.
        """
        if not self.server.up or self._refused:
            return
        self._connected = True
        self._connections += 1
        self.server.attach(self)
        if self._listener is not None:
            self.server.subscribe(self, message_channel(self._listener.manager_id))
        if not self._hung:
            self._pay()
        self.invalidated(None)

    def _pay(self) -> None:
        owed, self._owed = self._owed, {}
        for command in owed.values():
            if isinstance(self.server.execute(command, self), Refusal):
                self._release_refused(command)

    def _release_refused(self, release: Command) -> None:
        """Keep a refused release, and execute it again at intervals until its keys have expired."""
        if not self._owed:
            loop = asyncio.get_running_loop()
            loop.call_later(RETRY_RELEASES, self._retry, self._connections)
        self._owed[release.packed] = release

    def _retry(self, connection: int) -> None:
        if self._connected and not self._hung and connection == self._connections:
            now = self._clock()
            for packed, own in tuple(self._owed.items()):
                if (own.owed_until or now) <= now:
                    del self._owed[packed]
            self._pay()

    def invalidated(self, keys: list[bytes] | None) -> None:
        """Deliver a notice of changed keys, after the replies that the server has already sent."""
        if not self._behind_answers(partial(self._pass_on, keys)) and self._listener is not None:
            asyncio.get_running_loop().call_soon(self._pass_on, keys)

    def notified(self, message: bytes) -> None:
        """Deliver a message, after the replies that the server has already sent."""
        push = partial(self._pass_on_message, message, self._connections)
        if not self._behind_answers(push):
            asyncio.get_running_loop().call_soon(push)

    def _behind_answers(self, push: Callable[[], None]) -> bool:
        """Queue a push message behind the replies under way. Return False if there are none."""
        if not self._answers:
            return False
        self._answers.append(push)
        asyncio.get_running_loop().call_at(self._answered_at, self._answer, self._connections)
        return True

    def _pass_on(self, keys: list[bytes] | None) -> None:
        if self._listener is not None:
            self._listener.invalidated(self._index, keys)

    def _pass_on_message(self, message: bytes, connection: int) -> None:
        # A cut connection delivers nothing.
        if self._listener is not None and self._connected and connection == self._connections:
            self._listener.notified(self._index, message)

    def _arrive(self, connection: int) -> None:
        if connection != self._connections or not self._travelling:
            return
        sequence = self._travelling.popleft()
        if self._hung:
            self._inbox.append(sequence)
        else:
            self._execute(sequence)

    def _execute(self, sequence: int) -> None:
        reply = self.server.execute(self._waiting[sequence][0], self)
        self._answers.append(partial(self._deliver, sequence, reply))
        loop = asyncio.get_running_loop()
        self._answered_at = max(self._answered_at, loop.time() + self._latency())
        loop.call_at(self._answered_at, self._answer, self._connections)

    def _answer(self, connection: int) -> None:
        if connection != self._connections or not self._answers:
            return
        self._answers.popleft()()

    def _deliver(self, sequence: int, reply: Raw | Refusal) -> None:
        command, sink, index = self._waiting.pop(sequence)
        if not self._waiting:
            self._drained.set()
        if isinstance(reply, Refusal) and command.owed_until is not None:
            self._release_refused(command)
        sink.deliver(index, reply if isinstance(reply, Refusal) else sink.command.read(reply))
