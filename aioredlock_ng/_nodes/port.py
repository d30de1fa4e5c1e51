"""The interface of a node, which real, in-memory and simulated nodes implement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._scripts import Request
    from aioredlock_ng.events import Event

__all__ = ["SAME_SERVER", "Node", "NodeListener", "NodeState", "Sink", "State"]

SAME_SERVER: Final = "are the same server"
"""Part of the reason for which a node is refused that is the same server as another node."""

State = Literal["connecting", "up", "suspect", "quarantined", "down", "refused"]
"""The state of one node. A suspect node does not answer in time. A refused node must not vote."""


class Sink(Protocol):
    """The receiver of the answers to one command, from one or more nodes."""

    @property
    def command(self) -> Request:
        """The request, which also decodes the answers."""

    @property
    def started(self) -> float:
        """Instant at which the request was made, by the engine's clock."""

    def stands(self) -> bool:
        """True while the request may be sent again.

        The server executes a repeated request after requests that were sent in between.
        """

    def deliver(self, index: int, reply: Reply) -> None:
        """Process the answer of node `index`.

        A node calls this method exactly once per `ask`. The method must not raise and must not
        block.
        """


class NodeListener(Protocol):
    """The part of a manager to which a node reports.

    Attributes:
        manager_id: 16 hexadecimal digits that name this manager to other processes.
    """

    manager_id: bytes

    def invalidated(self, index: int, keys: list[bytes] | None) -> None:
        """Process the notice of node `index` that tracked keys changed.

        `keys` is None if any key may have changed, for example because tracking was lost.
        """

    def notified(self, index: int, message: bytes) -> None:
        """Process a message that another process published for this manager on node `index`.

        The method must not raise.
        """

    def identify(self, index: int, run_id: str) -> str:
        """Record the id of the server process of node `index`.

        If the process is unknown, `run_id` is empty.

        Returns:
            The address of another node that is the same process, or "".
        """

    def present(self, index: int, is_present: bool) -> None:
        """Record that node `index` has joined or left the outbox; see `Fleet`.

        A node without an outbox never calls this method.
        """

    def emit(self, event: Event) -> None:
        """Process an event of the node, such as `NodeDown`."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """The health of one node, for messages and statistics.

    Attributes:
        address: Host and port of the server, the path of its socket, or `service@sentinel`. The
            address has no credentials.
        state: "connecting", "up", "suspect", "quarantined", "down" or "refused".
        reason: The reason for the state; "" if the state is "up".
        server: Name and version of the server, "" if unknown.
        run_id: The id of the server process, "" if unknown.
        tracking: True if the server notifies us of changed keys (client tracking).
        messages: True if the server delivers messages from other processes, and accepts messages to
            them (pub/sub).
        pending: Number of requests that are not answered yet.
        owed: Number of releases that the server has not executed and that will be sent again.
            Commands to leave the queues count, too.
        connections: Number of connections so far.
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

    The server executes requests in the order of the `ask` calls, unless a request is sent again.
    `ask` never blocks, and never raises because of the server or the network. `Sink.deliver` gets
    the reply: the record of a script's result, or a mark of failure such as `Unsent` (see
    `votes.py`).

    Attributes:
        address: The name of the server in messages, without credentials.
    """

    address: str

    @property
    def ready(self) -> bool:
        """True while the server is connected and answers."""

    @property
    def tracking(self) -> bool:
        """True while the server reports changes of tracked keys."""

    @property
    def messages(self) -> bool:
        """True while the server delivers messages of other processes."""

    def ask(self, sink: Sink, index: int) -> None:
        """Send `sink.command`, and pass the reply to `sink.deliver(index, reply)`.

        The reply may be passed before `ask` returns.
        """

    def refuse(self, reason: str) -> None:
        """Disconnect for good, because the node must not vote in this manager's set of nodes."""

    async def open(
        self, index: int, listener: NodeListener, clock: Callable[[], float], node_timeout: float
    ) -> None:
        """Begin connecting. Return after the first attempt, whether it succeeded or not."""

    async def aclose(self, within: float) -> None:
        """Wait for outstanding replies, for at most `within` seconds, and then disconnect.

        A silent server is disconnected immediately.
        """

    def disown(self) -> None:
        """In a forked child, detach from the connection and send nothing.

        The connection belongs to the parent.
        """

    def state(self) -> NodeState:
        """Return the health of the node."""
