"""The state of each node as events tell it, for sinks that show it; it never asks a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from aioredlock_ng.events import (
    NodeAnswers,
    NodeDown,
    NodeQuarantined,
    NodeSuspect,
    NodeTrusted,
    NodeUp,
)

if TYPE_CHECKING:
    from aioredlock_ng.events import Event

__all__ = ["STATES", "Change", "NodeEvent", "NodeStates", "State"]

State = Literal["up", "suspect", "quarantined", "down"]

STATES: Final[tuple[State, ...]] = ("up", "suspect", "quarantined", "down")
"""As `redlock.nodes` has them, but that a node which is refused counts as down, and one never connected has no state."""

NodeEvent = NodeUp | NodeDown | NodeSuspect | NodeAnswers | NodeQuarantined | NodeTrusted

_REACHED: Final[dict[type[Event], State]] = {
    NodeUp: "up",
    NodeDown: "down",
    NodeSuspect: "suspect",
    NodeAnswers: "up",
}


class Change(NamedTuple):
    """A node's state before and after an event; None before its first."""

    node: str
    before: State | None
    after: State


class NodeStates:
    """Keeps two things apart that one state shows: whether a node answers, and whether it may have forgotten."""

    def __init__(self) -> None:
        self._reached: dict[str, State] = {}
        self._quarantined: set[str] = set()

    def take(self, event: NodeEvent) -> Change:
        """Count an event in, and say what it changed; perhaps nothing."""
        node = event.node
        before = self._of(node)
        if isinstance(event, NodeQuarantined):
            self._quarantined.add(node)
        elif isinstance(event, NodeTrusted):
            self._quarantined.discard(node)
        else:
            self._reached[node] = _REACHED[type(event)]
            if isinstance(event, NodeUp):
                # Whoever connects to it says again if it is in quarantine; who said so before may be gone.
                self._quarantined.discard(node)
        return Change(node, before, self._of(node) or "up")

    def _of(self, node: str) -> State | None:
        reached = self._reached.get(node)
        if node in self._quarantined and reached in (None, "up"):
            return "quarantined"
        return reached
