"""One frozen record per thing that happens; it never formats or sends anything: sinks do.

A sink is any callable that takes an event: `Redlock(nodes, sinks=[print])`. It is called on the event loop, in the middle
of things: it must be quick, must not block, and must not await. One that raises is reported once, in the log, and does no harm.
Times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Vote

__all__ = [
    "AcquireCancelled",
    "AcquireFailed",
    "AllNodesForgot",
    "Event",
    "EventSink",
    "LeaseAbandoned",
    "LeaseLost",
    "LeaseReleased",
    "LeasesRenewed",
    "LockAcquired",
    "LockHandedOn",
    "LossFound",
    "NodeAnswers",
    "NodeDegraded",
    "NodeDown",
    "NodeQuarantined",
    "NodeSuspect",
    "NodeTrusted",
    "NodeUp",
    "QuorumLost",
    "QuorumRegained",
    "RenewalFailed",
    "TaskFailed",
    "WaiterWoken",
]


@dataclass(frozen=True, slots=True)
class LockAcquired:
    """A caller was given a lease. Told in the caller's own task and context.

    Attributes:
        resource: The lock's name.
        token_prefix: The first characters of the lease's token; those to whom one grant is passed on have the same.
        fence: The lease's fence; None without fencing.
        waited: Seconds from the call to the lease.
        attempts: How often the nodes were asked; 1 where it was free, 0 for a grant that was passed on in line.
        votes: What each node said the last time, as far as it has answered.
    """

    resource: str
    token_prefix: str
    fence: int | None
    waited: float
    attempts: int
    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class AcquireFailed:
    """A caller was given an error instead of a lease. Told in the caller's own task and context.

    Attributes:
        resource: The lock's name.
        error: The error's class: `LockHeld`, `AcquireTimeout`, `QuorumUnreachable`, or `RedlockClosed` where it was closed
            meanwhile.
        reason: What it says.
        waited: Seconds from the call to the error.
        attempts: How often the nodes were asked.
        votes: What each node said the last time.
    """

    resource: str
    error: str
    reason: str
    waited: float
    attempts: int
    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class AcquireCancelled:
    """A caller was cancelled while it waited; its attempt is undone. Told in the caller's own task and context."""

    resource: str
    waited: float
    attempts: int


@dataclass(frozen=True, slots=True)
class LeaseReleased:
    """A lease was given up by its holder; the release is on its way.

    Where its answers then show that a quorum no longer held it, `LossFound` follows. Each lease that `LockAcquired` told of
    ends once, as released, abandoned or lost; nothing else is told to be released.
    """

    resource: str
    token_prefix: str
    held_for: float


@dataclass(frozen=True, slots=True)
class LossFound:
    """The answers to a release show that the lease had been lost: `release()` says False, `async with` raises `LockLost`."""

    resource: str
    token_prefix: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseAbandoned:
    """A holder let its lease expire by itself."""

    resource: str
    token_prefix: str
    held_for: float


@dataclass(frozen=True, slots=True)
class LeasesRenewed:
    """A quorum renewed these leases, which were asked for together.

    Attributes:
        leases: How many.
        took: Seconds from the question to the deciding answer.
    """

    leases: int
    took: float


@dataclass(frozen=True, slots=True)
class RenewalFailed:
    """No quorum renewed a lease this time; it is tried again until the deadline.

    Attributes:
        resource: The lock's name.
        remaining: Seconds until the lease is lost unless it is renewed.
        silent: True where too few nodes had answered in time, False where too many could not renew it.
    """

    resource: str
    remaining: float
    silent: bool


@dataclass(frozen=True, slots=True)
class LockHandedOn:
    """A lease of this process is over, and the next waiter of this process has its grant, or asks in the same write."""

    resource: str


@dataclass(frozen=True, slots=True)
class WaiterWoken:
    """A waiter asks again.

    Attributes:
        resource: The lock's name.
        cause: "told": by what nodes said, a quorum may grant. "expiry": the remaining time of a holder, or of an
            offer to another waiter, is over. "look": no quorum of nodes answered the waiter's look.
    """

    resource: str
    cause: Literal["told", "expiry", "look"]


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
class NodeAnswers:
    """A suspect node answers again, on the same connection."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeDegraded:
    """A node works, but lacks or refuses something, or answers a script with what does not fit it.

    The first renewal and the first release that a node refuses are told, each once until it takes one again.
    """

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A lease ended without being released.

    `cause`: `gone` (a quorum no longer holds its key), `unrenewed` (its deadline passed), or as the application wanted it:
    `expired` (it was not to be renewed), `max_hold`, `closed` (its `Redlock`). `held_for`: seconds, until it was lost.
    """

    resource: str
    token_prefix: str
    reason: str
    held_for: float
    cause: str = "gone"


@dataclass(frozen=True, slots=True)
class NodeQuarantined:
    """A node grants nothing for a while: it may have forgotten locks, or a node of a new set is missing.

    Said once per connection in a quarantine.

    `left`: seconds; infinite where the server refuses to show or to keep its marker, and `reason` is its own words.
    """

    node: str
    left: float
    reason: str


@dataclass(frozen=True, slots=True)
class NodeTrusted:
    """A node that was quarantined may vote again."""

    node: str


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A background task of the manager met an unexpected exception, and begins its work again.

    Attributes:
        task: The task's purpose and node.
        reason: The exception's class and its place in the code.
        retry_in: Seconds until it begins again.
    """

    task: str
    reason: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class AllNodesForgot:
    """All nodes lost their memory within one guard time: locks granted before are void.

    Only a manager that has seen a node trusted before notices. It is said once, until a node is
    trusted again. Locks that a majority of servers had on disk are kept.

    Attributes:
        nodes: The addresses of all nodes.
        left: Seconds until the first of them may grant a lock again.
    """

    nodes: tuple[str, ...]
    left: float


@dataclass(frozen=True, slots=True)
class QuorumLost:
    """No quorum of nodes can grant locks any more, or none could when the manager was opened.

    Told once; `QuorumRegained` follows. Leases go on until their deadlines.

    Attributes:
        able: How many nodes are connected and may grant.
        needed: How many a quorum is.
        nodes: How many there are.
        back_in: Seconds until a quorum may grant again, where quarantines alone are in the way;
            None where it is not known.
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
        able: How many nodes are.
        needed: How many a quorum is.
        nodes: How many there are.
        after: Seconds since `QuorumLost`.
    """

    able: int
    needed: int
    nodes: int
    after: float


Event = (
    LockAcquired
    | AcquireFailed
    | AcquireCancelled
    | LeaseReleased
    | LossFound
    | LeaseAbandoned
    | LeaseLost
    | LeasesRenewed
    | RenewalFailed
    | LockHandedOn
    | WaiterWoken
    | NodeUp
    | NodeDown
    | NodeSuspect
    | NodeAnswers
    | NodeDegraded
    | NodeQuarantined
    | NodeTrusted
    | TaskFailed
    | AllNodesForgot
    | QuorumLost
    | QuorumRegained
)

EventSink = Callable[[Event], None]
