"""Connections between simulated processes and servers: in order each way, never twice, with delays,
partitions and cuts.
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
"""Seconds at least until a lost packet is sent again (Linux' minimum)."""

TAIL = 100
"""Times that a message of the tail may take longer."""


class Profile:
    """How long one way takes.

    Args:
        base: Seconds at least.
        spread: Seconds of an exponential distribution on top.
        tail: Share of messages that take up to a hundred times longer.
        loss: Share of messages whose packet is lost and sent again, which stops all that follows.
        back: Seconds that the way back takes longer than the way there.
    """

    def __init__(
        self, base: float, spread: float, tail: float, loss: float, back: float = 0.0
    ) -> None:
        self.base, self.spread, self.tail, self.loss, self.back = base, spread, tail, loss, back

    @property
    def longest(self) -> float:
        """Seconds that a message of the tail takes at most."""
        return TAIL * (self.base + self.spread) if self.tail else 0.0

    @property
    def usual(self) -> float:
        """Seconds that hardly any message takes longer than, the tail apart."""
        return self.base + 7 * self.spread + self.back


class ServerEnd(Protocol):
    """The server's side of a connection."""

    def received(self, data: bytes) -> None:
        """Bytes have come."""

    def closed(self) -> None:
        """The other side is gone."""

    def unsubscribe(self) -> None:
        """Deliver no more messages."""


class Link:
    """The way between one process and one server, whatever connections it carries.

    Attributes:
        blocked: Partitions that stop what goes to the server, and what comes from it.
        extra: Seconds that each message takes longer, each way.
        connection: The one that is open.
        deaf: True while the server has lost the subscription of that connection.
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
        """True time since when nothing is wrong with it, and there is a connection that was
        greeted; else infinity.
        """
        return (
            math.inf
            if self.deaf or self._held or any(self.blocked) or any(self.extra)
            else self._calm_since
        )

    def greeted(self) -> None:
        """There is a connection."""
        self.deaf = False
        self._calm_since = self.world.now

    def disconnected(self) -> None:
        """There is none."""
        self._calm_since = math.inf

    def delay(self, way: int) -> float:
        """Draw how long a message takes."""
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
        """A message is there, unless a partition is in its way: then it comes once that is over."""
        if self.blocked[way] or any(held[0] == way for held in self._held):
            self._held.append((way, deliver))
        else:
            deliver()

    def block(self, way: int) -> None:
        """Begin a partition."""
        self.blocked[way] += 1
        self.troubled()

    def unblock(self, way: int) -> None:
        """End it; what was lost is sent again."""
        self.blocked[way] -= 1
        self.troubled()
        if not self.blocked[way] and any(held[0] == way for held in self._held):
            self.world.at(self.world.now + RETRANSMISSION * self.rng.random(), self._let_go, way)

    def troubled(self, going_on: float = 0.0) -> None:
        """Something was wrong up to now, or for so many seconds more."""
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
        """Connect, and wait for the server's kernel to say yes or no."""
        answer: asyncio.Future[int] = self.loop.create_future()

        def tell(life: int) -> None:
            if not answer.done():
                answer.set_result(life)

        def ask() -> None:
            life = self.server.life if self.server.up else 0
            back = lambda: self.loop.receive(tell, life)  # noqa: E731
            self.world.at(self.world.now + self.delay(1), self.arrive, 1, back)

        self.world.at(self.world.now + self.delay(0), self.arrive, 0, ask)
        life = await answer
        if not life or self.isolated:
            raise ConnectionRefusedError("connection refused")
        if life != self.server.life:
            raise ConnectionResetError("connection reset")
        return Connection(self)


class Connection(asyncio.Transport):
    """One connection; this is the transport of the process's end.

    Attributes:
        dead: True once it was cut or given up; what was under way may still arrive.
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
        # To the server, and to the process: when the last message arrives, so that none overtakes
        # it.
        self._last = [0.0, 0.0]
        self._server: ServerEnd | None = link.server.accept(self)

    def set_protocol(self, protocol: Any) -> None:
        """See asyncio."""
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See asyncio."""
        if not self._closing:
            self._send(0, self._at_server, bytes(data))

    def close(self) -> None:
        """See asyncio: what was written still arrives."""
        if not self._closing:
            self._closing = True
            self._send(0, self._end_at_server)
            self.link.loop.call_soon(self._tell_lost, None)

    def abort(self) -> None:
        """See asyncio; the kernel has what was written, and delivers it: maybe after what a new
        connection brings.
        """
        self.dead = True
        self.close()

    def is_closing(self) -> bool:
        """See asyncio."""
        return self._closing

    def get_write_buffer_size(self) -> int:
        """See asyncio: the kernel takes it all."""
        return 0

    def answer(self, data: bytes) -> None:
        """The server sends."""
        self._send(1, self._at_process, data)

    def lose_subscription(self) -> None:
        """The server delivers no more messages to this connection."""
        if self._server is not None:
            self._server.unsubscribe()

    def hang_up(self) -> None:
        """Close the server's side, as its process ended. Data that it sent before may arrive."""
        self._server = None
        self._send(1, self._reset_arrives)

    def cut(self, *, executes: bool, late: float = 0.0) -> None:
        """The connection dies under way.

        Args:
            executes: The server still gets what was sent.
            late: Seconds that that takes longer, so that a new connection may be faster.
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
            self._tell_lost(ConnectionResetError("connection reset"))

    def _tell_lost(self, error: Exception | None) -> None:
        self._closing = True
        if self._protocol is not None:
            self._protocol.connection_lost(error)
            self._protocol = None
