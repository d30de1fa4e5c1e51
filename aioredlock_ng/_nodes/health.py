"""The health of one server as its node sees it, and the events that report changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioredlock_ng._core.votes import Unsent
from aioredlock_ng._nodes.handshake import Greeting, no_tracking
from aioredlock_ng._nodes.port import NodeState
from aioredlock_ng.events import NodeAnswers, NodeDegraded, NodeDown, NodeSuspect, NodeUp

if TYPE_CHECKING:
    from aioredlock_ng._nodes.port import State
    from aioredlock_ng.events import EventSink

__all__ = ["Health"]


class Health:
    """The state of a node, the reason for it, and the facts that its server reported.

    Attributes:
        emit: Receives the events. The node sets `emit` before the first connection.
        state: The state of the node; see `port.State`.
        unsent: The reply to a request that cannot be sent.
        greeting: The facts that the server reported when it was last connected.
        connections: Number of connections so far.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self.emit: EventSink = _nobody
        self.state: State = "connecting"
        self.unsent = Unsent("not connected yet")
        self.greeting = Greeting("", "", False, False, ())
        self.connections = 0
        self._warned: set[str] = set()
        self._is_reported_down = False

    @property
    def reason(self) -> str:
        """The reason why the node is not up; "" while it is up."""
        return "" if self.state == "up" else str(self.unsent)

    def up(self, greeting: Greeting) -> None:
        """Record a new connection, and report missing features and risky settings of the server."""
        self.greeting = greeting
        self.connections += 1
        self.state = "up"
        self._is_reported_down = False
        self.emit(NodeUp(self._address, greeting.server))
        for lack in greeting.lacks:
            self.warn(lack)

    def down(self, reason: str, *, refused: bool, final: bool = False, reported: bool) -> None:
        """Record that there is no connection, and the reason.

        `refused` is True if the server answers but must not vote, and `final` if a retry does not
        help until somebody changes settings. If `reported` is True, emit an event, but only one
        until the node is up again.
        """
        self.state = "refused" if refused else "down"
        self.unsent = Unsent(reason, permanent=final)
        if reported and not self._is_reported_down:
            self._is_reported_down = True
            self.emit(NodeDown(self._address, reason))

    def suspect(self, patience: float) -> None:
        """Record that the server has not answered for `patience` seconds or more."""
        self.state = "suspect"
        self.unsent = Unsent(f"suspect, no answer for {patience:g} s or more")
        self.emit(NodeSuspect(self._address, patience))

    def answers(self) -> None:
        """Record that a suspect server answers in time again."""
        self.state = "up"
        self.emit(NodeAnswers(self._address))

    def tracks_no_more(self, reason: str) -> bool:
        """Record that the server refuses to track keys. Return False if that was known before."""
        tracked = self.greeting.tracking
        if tracked:
            self.greeting = replace(self.greeting, tracking=False)
            self.warn(no_tracking(f"CLIENT CACHING refused: {reason}"))
        return tracked

    def described(self, tracking: bool, messages: bool, pending: int, owed: int) -> NodeState:
        """Return the health as a `NodeState`. The arguments are its attributes of these names."""
        return NodeState(
            address=self._address,
            state=self.state,
            reason=self.reason,
            server=self.greeting.server,
            run_id=self.greeting.run_id,
            tracking=tracking,
            messages=messages,
            pending=pending,
            owed=owed,
            connections=self.connections,
        )

    def warn(self, words: str) -> None:
        """Report a missing feature or a fault of the node, but each text only once."""
        if words not in self._warned:
            self._warned.add(words)
            self.degraded(words)

    def refuses_releases(self, reason: str) -> None:
        self.degraded(
            f"it refuses to release locks, whose keys stay until their ttl has passed: {reason}"
        )

    def degraded(self, words: str) -> None:
        self.emit(NodeDegraded(self._address, words))


def _nobody(_event: object) -> None:
    """Ignore an event that comes before the node is opened."""
