"""Simulated connections between processes and servers.

Each direction of a connection delivers its bytes in order, and never twice. Messages are delayed,
and partitions and cuts interrupt them.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.server import Server
    from tests.simulation.world import ProcessLoop, World

__all__ = ["Connection", "Link", "Profile", "ServerEnd"]

RETRANSMISSION = 0.2
"""Shortest time until a lost packet is sent again, in seconds. Linux has the same minimum."""

TAIL = 100
"""Largest additional delay of a message of the tail, as a multiple of the usual delay."""


class Profile:
    """The delays of messages between one process and one server.

    Args:
        base: Shortest delay of one way, in seconds.
        spread: Mean of the random part of the delay, in seconds. It has an exponential
            distribution.
        tail: Share of messages that take up to a hundred times longer.
        loss: Share of messages whose packet is lost and sent again. All later messages wait for
            this packet.
        back: Seconds by which an answer takes longer than a request.
    """

    def __init__(
        self, base: float, spread: float, tail: float, loss: float, back: float = 0.0
    ) -> None:
        self.base, self.spread, self.tail, self.loss, self.back = base, spread, tail, loss, back

    @property
    def longest(self) -> float:
        """Largest additional delay of a message of the tail, in seconds."""
        return TAIL * (self.base + self.spread) if self.tail else 0.0

    @property
    def usual(self) -> float:
        """Delay in seconds that hardly any message exceeds, except for the tail."""
        return self.base + 7 * self.spread + self.back


class ServerEnd(Protocol):
    """The server's side of a connection."""

    def received(self, data: bytes) -> None:
        """Handle bytes that have arrived."""

    def closed(self) -> None:
        """Handle the end of the other side."""

    def unsubscribe(self) -> None:
        """Send no more published messages."""


class Link:
    """The network between one process and one server. It carries all their connections.

    Attributes:
        blocked: Number of partitions that hold back requests, and number that hold back answers.
        extra: Additional seconds that each request takes, and that each answer takes.
        connection: The latest connection.
        deaf: True while the server has lost the subscription of this connection.
        isolated: True if no connection can be made any more.
    """

    def __init__(self, world: World, loop: ProcessLoop, server: Server, profile: Profile) -> None:
        self.world = world
        self.loop = loop
        self.server = server
        self.profile = profile
        self.name = f"{loop.name}-{server.name}"
        self.rng = world.rng(self.name)
        self.blocked = [0, 0]
        self.extra = [0.0, 0.0]
        self._calm_since = math.inf
        self.deaf = False
        self.connection: Connection | None = None
        self.isolated = False
        self._held: list[tuple[int, Callable[[], None]]] = []

    @property
    def calm_since(self) -> float:
        """True time since when the link has had a ready connection and no fault. Infinity if it has
        not.
        """
        return (
            math.inf
            if self.deaf or self._held or any(self.blocked) or any(self.extra)
            else self._calm_since
        )

    def greeted(self) -> None:
        """Note that the process has a ready connection."""
        self.deaf = False
        self._calm_since = self.world.now

    def disconnected(self) -> None:
        """Note that the process has lost its connection."""
        self._calm_since = math.inf

    def delay(self, way: int) -> float:
        """Draw the delay of one message, in seconds."""
        profile, rng = self.profile, self.rng
        delay = profile.base + rng.expovariate(1.0) * profile.spread + way * profile.back
        late = 0.0
        if profile.tail and rng.random() < profile.tail:
            late = profile.longest * rng.random() ** 2
        if profile.loss and rng.random() < profile.loss:
            late += RETRANSMISSION * (1 + rng.random())
        if late:
            self.troubled(delay + late)
        return delay + late + self.extra[way]

    def arrive(self, way: int, deliver: Callable[[], None]) -> None:
        """Deliver a message, at once or after the partition that holds it back."""
        if self.blocked[way] or any(held[0] == way for held in self._held):
            self._held.append((way, deliver))
        else:
            deliver()

    def block(self, way: int) -> None:
        """Begin a partition in one direction."""
        self.blocked[way] += 1
        self.troubled()

    def unblock(self, way: int) -> None:
        """End a partition in one direction. The packets that it stopped are sent again."""
        self.blocked[way] -= 1
        self.troubled()
        if not self.blocked[way] and any(held[0] == way for held in self._held):
            self.world.at(self.world.now + RETRANSMISSION * self.rng.random(), self._let_go, way)

    def troubled(self, going_on: float = 0.0) -> None:
        """Note a fault that lasted until now, or that lasts for so many seconds more."""
        if self._calm_since < math.inf:
            self._calm_since = max(self._calm_since, self.world.now + going_on)

    def _let_go(self, way: int) -> None:
        if self.blocked[way]:
            return
        mine = [deliver for direction, deliver in self._held if direction == way]
        self._held = [held for held in self._held if held[0] != way]
        self.troubled()
        for deliver in mine:
            deliver()

    async def dial(self) -> Connection:
        """Open a connection.

        Raises:
            ConnectionRefusedError: The server is down, or the link is isolated.
            ConnectionResetError: The server process has ended in the meantime.
        """
        answer: asyncio.Future[int] = self.loop.create_future()

        def resolve(life: int) -> None:
            if not answer.done():
                answer.set_result(life)

        def ask() -> None:
            life = self.server.life if self.server.up else 0
            back = lambda: self.loop.receive(resolve, life)  # noqa: E731
            self.world.at(self.world.now + self.delay(1), self.arrive, 1, back)

        self.world.at(self.world.now + self.delay(0), self.arrive, 0, ask)
        life = await answer
        if not life or self.isolated:
            raise ConnectionRefusedError("connection refused")
        if life != self.server.life:
            raise ConnectionResetError("connection reset")
        return Connection(self)


class Connection(asyncio.Transport):
    """One connection, as the transport of the process.

    A method without a docstring does the same as in `asyncio.Transport`.

    Attributes:
        dead: True once the connection was cut or aborted. Bytes that were sent before may still
            arrive.
    """

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.link = link
        self._world = link.world
        self._protocol: Any = None
        self._early = b""
        self._closing = False
        self.dead = False
        self._late = 0.0
        # Arrival of the latest request and of the latest answer. Without these times, a later
        # message could overtake an earlier one.
        self._last = [0.0, 0.0]
        self._server: ServerEnd | None = link.server.accept(self)

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self._send(0, self._at_server, bytes(data))

    def close(self) -> None:
        """Close the connection. Bytes that were written before still arrive."""
        if not self._closing:
            self._closing = True
            self._send(0, self._end_at_server)
            self.link.loop.call_soon(self._report_loss, None)

    def abort(self) -> None:
        """Close the connection at once.

        The kernel still delivers the bytes that were written before, perhaps after bytes of a new
        connection.
        """
        self.dead = True
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        """Return 0, because the kernel takes all bytes at once."""
        return 0

    def answer(self, data: bytes) -> None:
        """Send bytes from the server to the process."""
        self._send(1, self._at_process, data)

    def lose_subscription(self) -> None:
        """Let the server send no more published messages over this connection."""
        if self._server is not None:
            self._server.unsubscribe()

    def hang_up(self) -> None:
        """Close the server's side, because its process has ended. Bytes that it sent before may
        arrive.
        """
        self._server = None
        self._send(1, self._reset_arrives)

    def cut(self, *, executes: bool, late: float = 0.0) -> None:
        """Break the connection.

        Args:
            executes: True if the server still receives the bytes that were sent.
            late: Additional seconds until these bytes arrive, so that a new connection may be
                faster.
        """
        self.dead = True
        self._late = late
        server = self._server
        if not executes:
            self._server = None
        if server is not None:
            self._world.at(max(self._last[0], self._world.now) + late + 0.001, server.closed)
        self._reset_arrives()

    def _send(self, way: int, deliver: Callable[..., None], *args: Any) -> None:
        when = max(self._last[way], self._world.now + self.link.delay(way))
        self._last[way] = when
        self._world.at(when, self.link.arrive, way, lambda: deliver(*args))

    def _at_server(self, data: bytes) -> None:
        if self._late:
            self._world.at(self._world.now + self._late, self._hand_over, data)
        else:
            self._hand_over(data)

    def _hand_over(self, data: bytes) -> None:
        if self._server is not None:
            self._server.received(data)

    def _end_at_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.closed()

    def _at_process(self, data: bytes) -> None:
        self.link.loop.receive(self._read, data)

    def _read(self, data: bytes) -> None:
        if self._closing or self.dead:
            return
        view = memoryview(data)
        while view:
            buffer = self._protocol.get_buffer(len(view))
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            self._protocol.buffer_updated(size)
            if self.is_closing():
                return
            view = view[size:]

    def _reset_arrives(self) -> None:
        self.link.disconnected()
        self.link.loop.receive(self._reset)

    def _reset(self) -> None:
        if not self._closing:
            self._report_loss(ConnectionResetError("connection reset"))

    def _report_loss(self, error: Exception | None) -> None:
        self._closing = True
        if self._protocol is not None:
            self._protocol.connection_lost(error)
            self._protocol = None
