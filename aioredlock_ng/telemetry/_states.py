"""Track the state of each node from events, for sinks that show the states."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from aioredlock_ng._forks import call_in_children
from aioredlock_ng.events import (
    NodeAnswers,
    NodeDown,
    NodeQuarantined,
    NodeSuspect,
    NodeTrusted,
    NodeUp,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioredlock_ng.events import Event

__all__ = ["NODE_EVENTS", "STATES", "Change", "NodeEvent", "NodeStates", "State"]

State = Literal["up", "suspect", "quarantined", "down"]

STATES: Final[tuple[State, ...]] = ("up", "suspect", "quarantined", "down")
"""The states that a sink shows. They are the states of `redlock.nodes`, with two differences.

The state "refused" is shown as "down", and a node has no state before its first event.
"""

NodeEvent = NodeUp | NodeDown | NodeSuspect | NodeAnswers | NodeQuarantined | NodeTrusted

NODE_EVENTS: Final[tuple[type[NodeEvent], ...]] = get_args(NodeEvent)
"""The types of the events that change the state of a node."""

_REACHED: Final[dict[type[Event], State]] = {
    NodeUp: "up",
    NodeDown: "down",
    NodeSuspect: "suspect",
    NodeAnswers: "up",
}


class Change(NamedTuple):
    """A node's state before and after an event. The field `before` is None for the first event."""

    node: str
    before: State | None
    after: State


class NodeStates:
    """The states of all nodes.

    The state of a node combines two independent facts: whether the node answers, and whether it is
    quarantined. This object stores the two facts separately.

    Managers in several threads may share this object. In a forked child, no node has a state before
    its first event there.
    """

    def __init__(self) -> None:
        self._forget()
        call_in_children(self, NodeStates._forget)

    @contextmanager
    def taking(self, event: NodeEvent) -> Iterator[Change]:
        """Apply an event, and yield the node's state before and after it.

        No other event is applied before the `with` block ends. Otherwise two threads could both see
        the first event of a node, or show their states in the wrong order.
        """
        with self._mutex:
            yield self._take(event)

    def _take(self, event: NodeEvent) -> Change:
        node = event.node
        before = self._of(node)
        if isinstance(event, NodeQuarantined):
            self._quarantined.add(node)
        elif isinstance(event, NodeTrusted):
            self._quarantined.discard(node)
        else:
            self._reached[node] = _REACHED[type(event)]
            if isinstance(event, NodeUp):
                # A manager may report a quarantine and be closed before the quarantine ends. So a
                # new connection ends the quarantine here. A manager that connects to a quarantined
                # node reports the quarantine anew.
                self._quarantined.discard(node)
        return Change(node, before, self._of(node) or "up")

    def _forget(self) -> None:
        self._reached: dict[str, State] = {}
        self._quarantined: set[str] = set()
        # A signal handler may report an event while its own thread reports another one. A forked
        # child needs a new mutex, because a thread of the parent may have held the old one.
        self._mutex = threading.RLock()

    def _of(self, node: str) -> State | None:
        reached = self._reached.get(node)
        if node in self._quarantined and reached in (None, "up"):
            return "quarantined"
        return reached
