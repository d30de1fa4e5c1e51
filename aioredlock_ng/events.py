"""One frozen record per thing that happens; it never formats or sends anything: sinks do."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Event", "LeaseLost", "NodeDegraded", "NodeDown", "NodeQuarantined", "NodeSuspect", "NodeTrusted", "NodeUp"]


@dataclass(frozen=True, slots=True)
class NodeUp:
    """A node was connected and identified; it may vote."""

    node: str
    server: str


@dataclass(frozen=True, slots=True)
class NodeDown:
    """A node's connection was lost, or it could not be connected. Said once per outage, not per attempt."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodeSuspect:
    """A connected node has stopped answering; acquires go on without it until it answers."""

    node: str
    silent_for: float


@dataclass(frozen=True, slots=True)
class NodeDegraded:
    """A node works, but something that it lacks makes waiting slower or checks weaker."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A lease ended without being released."""

    resource: str
    token_prefix: str
    reason: str
    held_for: float


@dataclass(frozen=True, slots=True)
class NodeQuarantined:
    """A node may have forgotten locks: it grants nothing for a while. Said once per quarantine."""

    node: str
    left: float
    reason: str


@dataclass(frozen=True, slots=True)
class NodeTrusted:
    """A node that was quarantined may vote again."""

    node: str


Event = NodeUp | NodeDown | NodeSuspect | NodeDegraded | NodeQuarantined | NodeTrusted | LeaseLost
