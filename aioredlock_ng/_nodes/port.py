"""What the engine needs of a node, and nothing else: the one small protocol that real, in-memory and simulated nodes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._scripts import Request
    from aioredlock_ng.events import Event

__all__ = ["Node", "NodeListener", "NodeState", "Sink", "State"]

State = Literal["connecting", "up", "suspect", "quarantined", "down", "refused"]
"""The state of one node, see `NodeState`."""


class Sink(Protocol):
    """Who asks one command, of one or more nodes, and gets the answers."""

    @property
    def command(self) -> Request:
        """What it asks."""

    @property
    def started(self) -> float:
        """Instant at which it began asking, by the engine's clock."""

    def stands(self) -> bool:
        """True while the asker wants its request executed, even if that happens after what it asked later."""

    def deliver(self, index: int, reply: Reply) -> None:
        """Take the answer of node `index`. Called exactly once per `ask`; must not raise and must not block."""


class NodeListener(Protocol):
    """Whom a node tells what nobody asked for.

    Attributes:
        manager_id: 16 hexadecimal digits that name this manager to other processes.
    """

    manager_id: bytes

    def invalidated(self, index: int, keys: list[bytes] | None) -> None:
        """Node `index` says that tracked keys changed; None: any key may have, or tracking was lost."""

    def notified(self, index: int, message: bytes) -> None:
        """Take a message that another process has published for this manager on node `index`; must not raise."""

    def identify(self, index: int, run_id: str) -> str:
        """Node `index` is now server process `run_id`; returns the address of another node that is the same, or ""."""

    def present(self, index: int, is_present: bool) -> None:
        """Node `index` is (or is no longer) asked through the shared outbox; without one it is never told."""

    def emit(self, event: Event) -> None:
        """Something happened."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """Health of one node, for people.

    Attributes:
        address: Where it is, without credentials.
        state: "connecting", "up", "suspect", "quarantined", "down" or "refused".
        reason: For all but "up": why.
        server: Name and version as the server tells, "" before the first connection.
        run_id: The server process's own id, "" where unknown.
        tracking: True when the server tells us about changed keys (client tracking).
        messages: True if the server delivers messages from other processes (pub/sub).
        pending: Requests sent and not yet answered.
        owed: Releases to be delivered once it is back.
        connections: How many times it was connected.
    """

    address: str
    state: State
    reason: str = ""
    server: str = ""
    run_id: str = ""
    tracking: bool = False
    messages: bool = False
    pending: int = 0
    owed: int = 0
    connections: int = 0


class Node(Protocol):
    """One independent lock server.

    Requests are executed in the order in which they were asked. `ask` never blocks, never raises for what the server
    or the network does, and answers through `Sink.deliver`: the record of a script's reply, or a mark (`votes.py`).

    Attributes:
        address: Where the server is, without credentials.
    """

    address: str

    @property
    def ready(self) -> bool:
        """True while it is connected and answering."""

    @property
    def tracking(self) -> bool:
        """True while it tells about changed keys."""

    @property
    def messages(self) -> bool:
        """True while it delivers messages from other processes."""

    def ask(self, sink: Sink, index: int) -> None:
        """Send `sink.command`; the answer goes to `sink.deliver(index, reply)`, possibly before this returns."""

    def refuse(self, reason: str) -> None:
        """Disconnect for good: it must not vote in this set."""

    async def open(
        self, index: int, listener: NodeListener, clock: Callable[[], float], node_timeout: float
    ) -> None:
        """Begin connecting; returns after the first attempt has ended, well or not."""

    async def aclose(self, within: float) -> None:
        """Wait for the answers under way, `within` seconds at most and not for a silent server, and disconnect."""

    def disown(self) -> None:
        """In a forked child: let go of everything without a word to the server; the connection is the parent's."""

    def state(self) -> NodeState:
        """Health now."""
