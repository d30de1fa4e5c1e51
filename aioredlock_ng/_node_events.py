"""Define the events of nodes, of the quorum and of background tasks, for `events`."""

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
    """A node was connected and identified. It may vote."""

    node: str
    server: str


@dataclass(frozen=True, slots=True)
class NodeDown:
    """A node's connection was lost or could not be made. The event is sent once per outage."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodeSuspect:
    """A connected node stopped answering. Rounds do not wait for it until it answers again."""

    node: str
    silent_for: float


@dataclass(frozen=True, slots=True)
class NodeAnswers:
    """A suspect node answers again on the same connection."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeDegraded:
    """A node works, but lacks or refuses something, or gives an unexpected reply to a script.

    The first refused renewal and the first refused release of a node each send one event. A later
    refusal sends another event only after the node has accepted a request of that kind.
    """

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodeQuarantined:
    """A node grants nothing for a while.

    It may have forgotten locks, or a node of a new set is missing.

    The event is sent once per connection in a quarantine.

    Attributes:
        node: The node's address.
        left: Seconds until the node may grant. Infinite if the server refuses to show or to store
            its marker.
        reason: The cause in words, or the server's own words if it refuses the marker.
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
        task: The task's purpose and node.
        reason: The exception's class and its place in the code.
        retry_in: Seconds until the restart.
    """

    task: str
    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class AllNodesForgot:
    """All nodes lost their memory within one guard time. Locks granted before are void.

    Only a manager that has seen a trusted node before can notice this. No second event is sent
    before a node is trusted again. Locks that a majority of servers had saved to disk are kept.

    Attributes:
        nodes: The addresses of all nodes.
        left: Seconds until the first node may grant a lock again.
    """

    nodes: tuple[str, ...]
    left: float


@dataclass(frozen=True, slots=True)
class QuorumLost:
    """No quorum of nodes can grant locks any more, or none could at the opening of the manager.

    The event is sent once, and `QuorumRegained` follows. Leases stay valid until their deadlines.

    Attributes:
        able: Number of nodes that are connected and may grant.
        needed: Number of nodes in a quorum.
        nodes: Number of all nodes.
        back_in: Seconds until a quorum may grant again, if quarantines are the only obstacle. None
            if the time is not known.
        reasons: "address: state (reason)" of each of the other nodes.
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
