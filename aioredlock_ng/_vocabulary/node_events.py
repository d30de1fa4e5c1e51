"""Define the events of nodes, quorum and background tasks. The module `events` exports them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "AllNodesForgot",
    "NodeAnswers",
    "NodeDegraded",
    "NodeDown",
    "NodeQuarantined",
    "NodeSuspect",
    "NodeTrusted",
    "NodeUp",
    "QuorumLost",
    "QuorumRegained",
    "TaskFailed",
]


@dataclass(frozen=True, slots=True)
class NodeUp:
    """A node was connected and identified. The node may still be in quarantine."""

    node: str
    server: str


@dataclass(frozen=True, slots=True)
class NodeDown:
    """A node's connection was lost or could not be made. The event is sent once per outage."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodeSuspect:
    """A connected node stopped answering. No round waits for this node until it answers again."""

    node: str
    silent_for: float


@dataclass(frozen=True, slots=True)
class NodeAnswers:
    """A suspect node answers again on the same connection."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeDegraded:
    """A node works, but lacks a feature, refuses a request, or replies unexpectedly to a script.

    The first refused renewal and the first refused release of a node each send one event. A later
    refusal sends another event only if the node has accepted a request of the same kind in between.
    If a node refuses to release read leases, to shorten locks with `min_hold`, or to remove waiters
    from its queues, each reason sends one event.
    """

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodeQuarantined:
    """A node grants nothing for a while.

    Either the node may have forgotten locks, or the set of nodes is new and another node of the set
    is missing.

    The event is sent at the beginning of the quarantine, and again after each new connection.

    Attributes:
        node: The node's address.
        left: Seconds until the node may grant. Infinite if the server refuses to show or to store
            the marker of the recovery guard.
        reason: The cause in words, or the server's own words if the server refuses the marker.
    """

    node: str
    left: float
    reason: str


@dataclass(frozen=True, slots=True)
class NodeTrusted:
    """A node left its quarantine and may vote again."""

    node: str


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A background task of the manager met an unexpected exception and restarts its work.

    Attributes:
        task: The purpose of the task, and its node.
        reason: The exception's class, and the file and line that raised it.
        retry_in: Seconds until the restart.
    """

    task: str
    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class AllNodesForgot:
    """All nodes restarted or lost their memory within one guard time (`max_ttl` plus a second).

    Locks that the nodes forgot are void. Locks that a majority of the servers had saved to disk
    stay valid. Only a manager that used these nodes before the loss can notice the loss. After this
    event, no second one is sent until a node is trusted again.

    Attributes:
        nodes: The addresses of all nodes.
        left: Seconds until the first node may grant a lock again.
    """

    nodes: tuple[str, ...]
    left: float


@dataclass(frozen=True, slots=True)
class QuorumLost:
    """No quorum of nodes can grant locks.

    A manager sends the event once per loss. If no quorum can grant when the manager opens, this
    counts as a loss, too. `QuorumRegained` follows when a quorum is back. Leases stay valid until
    their deadlines.

    Attributes:
        able: Number of nodes that are connected and may grant.
        needed: Number of nodes in a quorum.
        nodes: Number of all nodes.
        back_in: Seconds until a quorum may grant again, if quarantines are the only obstacle. None
            if the time is not known.
        reasons: "address: state (reason)" of each node that cannot grant.
    """

    able: int
    needed: int
    nodes: int
    back_in: float | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuorumRegained:
    """A quorum of nodes is connected and may grant again.

    Attributes:
        able: Number of nodes that are connected and may grant.
        needed: Number of nodes in a quorum.
        nodes: Number of all nodes.
        after: Seconds since `QuorumLost`.
    """

    able: int
    needed: int
    nodes: int
    after: float
