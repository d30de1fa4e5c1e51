"""Define one frozen record per event of the library.

A sink is a callable that takes an event: `Redlock(nodes, sinks=[print])`. The library calls a sink
on its event loop, and waits until the sink returns. So a sink must return quickly, and must neither
block nor await. The log reports the first exception of a sink, and the library goes on. Times are
seconds. The field `shared` is True for the read side of a read-write lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aioredlock_ng._vocabulary.election_events import (
    LeaderChanged,
    RenewalSlow,
    SteppingDown,
    TermBegan,
    TermEnded,
    TermOutlived,
)
from aioredlock_ng._vocabulary.node_events import (
    AllNodesForgot,
    NodeAnswers,
    NodeDegraded,
    NodeDown,
    NodeQuarantined,
    NodeSuspect,
    NodeTrusted,
    NodeUp,
    QuorumLost,
    QuorumRegained,
    TaskFailed,
)

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Vote

__all__ = [
    "AcquireCancelled",
    "AcquireFailed",
    "AllNodesForgot",
    "Event",
    "EventSink",
    "LeaderChanged",
    "LeaseAbandoned",
    "LeaseDowngraded",
    "LeaseLost",
    "LeaseReleased",
    "LeasesRenewed",
    "LockAcquired",
    "LockHandedOver",
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
    "RenewalSlow",
    "SteppingDown",
    "TaskFailed",
    "TermBegan",
    "TermEnded",
    "TermOutlived",
    "WaiterWoken",
]


@dataclass(frozen=True, slots=True)
class LockAcquired:
    """A caller received a lease. Sinks are called with the caller's context variables.

    Attributes:
        resource: The lock's name.
        token_prefix: The first characters of the lease's token. Leases of one grant share the
            token.
        fence: The lease's fence. None without fencing.
        waited: Seconds from the call to the lease.
        attempts: Number of attempts of the caller. Usually 1 if the lock was free. 0 if the caller
            received the grant of another task without a request to the nodes.
        votes: The last vote of each node. The outcome is `unknown` for a node without an answer.
        slot: The slot of a semaphore, from 1. None for a lock.
    """

    resource: str
    token_prefix: str
    fence: int | None
    waited: float
    attempts: int
    votes: tuple[Vote, ...]
    slot: int | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class AcquireFailed:
    """A caller received an error instead of a lease.

    Sinks are called with the caller's context variables.

    Attributes:
        resource: The lock's name.
        error: Class of the error: `LockHeld`, `UpgradeRefused`, `AcquireTimeout`,
            `QuorumUnreachable`, or `RedlockClosed` if the manager was closed meanwhile.
        reason: Message of the error.
        waited: Seconds from the call to the error.
        attempts: Number of attempts of the caller.
        votes: The last vote of each node. Empty if no node was asked.
    """

    resource: str
    error: Literal[
        "LockHeld", "UpgradeRefused", "AcquireTimeout", "QuorumUnreachable", "RedlockClosed"
    ]
    reason: str
    waited: float
    attempts: int
    votes: tuple[Vote, ...]
    shared: bool = False


@dataclass(frozen=True, slots=True)
class AcquireCancelled:
    """A waiting caller was cancelled, and its attempt is undone.

    Sinks are called with the caller's context variables.
    """

    resource: str
    waited: float
    attempts: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class LeaseDowngraded:
    """A write lease became a read lease by `Lease.downgrade`.

    The event that reports the end of the lease has `shared=True`.
    """

    resource: str
    token_prefix: str


@dataclass(frozen=True, slots=True)
class LeaseReleased:
    """The holder released a lease. The requests to the nodes, if any, are queued.

    `LossFound` follows if the answers show that a quorum no longer held the key. Each lease of a
    `LockAcquired` event ends exactly once, as released, abandoned or lost. No event reports the
    deletion of another token, such as the token of a failed attempt.
    """

    resource: str
    token_prefix: str
    held_for: float
    shared: bool = False


@dataclass(frozen=True, slots=True)
class LossFound:
    """A lease of an earlier `LeaseReleased` turned out to be lost.

    `release()` returns False, and `async with` raises `LockLost`. The cause is "gone" if the
    answers to the release show the loss, "closed" if a closing released the lease of a body.
    """

    resource: str
    token_prefix: str
    reason: str
    shared: bool = False
    cause: Literal["gone", "closed"] = "gone"


@dataclass(frozen=True, slots=True)
class LeaseAbandoned:
    """The holder abandoned its lease, which now expires by itself."""

    resource: str
    token_prefix: str
    held_for: float
    shared: bool = False


@dataclass(frozen=True, slots=True)
class LeasesRenewed:
    """A quorum renewed a group of leases with one request.

    Attributes:
        leases: Number of renewed leases.
        took: Seconds from the request to the deciding answer.
    """

    leases: int
    took: float


@dataclass(frozen=True, slots=True)
class RenewalFailed:
    """No quorum renewed a lease in time. With `auto_extend`, the library tries again soon.

    Attributes:
        resource: The lock's name.
        remaining: Seconds until the lease is lost if no renewal succeeds.
        silent: True: too few nodes answered in time. False: too many nodes failed to renew.
    """

    resource: str
    remaining: float
    silent: bool


@dataclass(frozen=True, slots=True)
class LockHandedOver:
    """A lease of this process ended, and a waiting task of the process gets or requests the lock.

    Either the task has received the grant, or its request is sent in the same write as the release.
    """

    resource: str


@dataclass(frozen=True, slots=True)
class WaiterWoken:
    """A waiter sends a new attempt.

    Attributes:
        resource: The lock's name.
        cause: The reason for the attempt. "notified": messages or answers of the nodes say that a
            quorum may grant. "expiry": the remaining time of a holder, or of an offer to another
            waiter, is over. "fallback": no quorum answered the last request of the waiting line.
    """

    resource: str
    cause: Literal["notified", "expiry", "fallback"]


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A lease ended without a release.

    Attributes:
        resource: The lock's name.
        token_prefix: The first characters of the lease's token.
        reason: The cause in words.
        held_for: Seconds from the start of the lease to the loss.
        cause: "gone" if a quorum no longer holds the key. "unrenewed" if the deadline passed, or if
            the engine's thread ended. "stalled" if the event loop stood still. Three causes
            come from the application: "expired" (a lease without renewal), "max_hold" and "closed"
            (the manager, or the holder's event loop, was closed).
    """

    resource: str
    token_prefix: str
    reason: str
    held_for: float
    cause: Literal["gone", "unrenewed", "stalled", "expired", "max_hold", "closed"] = "gone"
    shared: bool = False


Event = (
    LockAcquired
    | AcquireFailed
    | AcquireCancelled
    | LeaseDowngraded
    | LeaseReleased
    | LossFound
    | LeaseAbandoned
    | LeaseLost
    | LeasesRenewed
    | RenewalFailed
    | LockHandedOver
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
    | TermBegan
    | TermEnded
    | RenewalSlow
    | SteppingDown
    | TermOutlived
    | LeaderChanged
)

EventSink = Callable[[Event], None]
