"""Define the frozen records that operators receive, for example from `Redlock.inspect`."""

from __future__ import annotations

from dataclasses import dataclass, field

from aioredlock_ng._vocabulary.diagnosis import (
    ClockReading,
    Diagnosis,
    Finding,
    NodeFacts,
    Refused,
    RoundTrips,
    Severity,
)

__all__ = [
    "ClockReading",
    "Diagnosis",
    "Finding",
    "LockInfo",
    "NodeAnswer",
    "NodeFacts",
    "Owner",
    "Queued",
    "ReaderInfo",
    "Refused",
    "RoundTrips",
    "SemaphoreInfo",
    "Severity",
    "Stats",
]


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The answer of one node about a lock.

    Attributes:
        node: The node's address.
        token: The value of the key, without the prefix that marks an ended lease. None if readers
            hold the key, if the key is reserved, missing or of another type, or if the node did not
            answer.
            The repr leaves the token out, because anybody can release the lock with it.
        remaining: Seconds until the key expires. None if there is no key, no expiry or no answer.
        detail: The reason for a missing answer, or the note that the key's type is not that of a
            lock.
        foreign: The type of a key that cannot be a lock of this library, for example "hash".
            "string" means a string without expiry, "other" an unknown type. "": the key may be a
            lock, or there is no key.
        waiting: Number of clients in this node's queue for the key. None if the node does not
            report the number.
        offered: True if the key is reserved for a waiter, for at most `remaining` seconds. Nobody
            holds the lock then.
        over: True if the lease of the token has ended, and `min_hold` keeps the key.
        readers: Number of read grants under the key.
    """

    node: str
    token: str | None = field(repr=False)
    remaining: float | None
    detail: str = ""
    foreign: str = ""
    waiting: int | None = None
    offered: bool = False
    over: bool = False
    readers: int = 0


@dataclass(frozen=True, slots=True)
class Owner:
    """The label that a holder writes beside its keys once its lease is a tenth of a second old.

    If `min_hold` keeps the keys after the lease, even a shorter lease gets a label.

    Attributes:
        label: Host, process and task of the holder, or the text of the option `owner`.
        fence: The lease's fence. None without fencing.
        since: Start of the lease in seconds since 1970, by the holder's wall clock.
    """

    label: str
    fence: int | None
    since: float


@dataclass(frozen=True, slots=True)
class ReaderInfo:
    """One read grant that a quorum of nodes has.

    Attributes:
        token: The token of the grant, which all leases of the grant share.
        nodes: Number of nodes that have the token.
        remaining: Seconds until fewer nodes than a quorum have the token, as in `LockInfo`.
        owner: The label of the reader. None if the reader has written no label yet, or writes none.
    """

    token: str = field(repr=False)
    nodes: int
    remaining: float
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class LockInfo:
    """The state of a lock, from the answers of all nodes.

    Attributes:
        resource: The lock's name.
        held: True if a quorum of nodes has the same token, the same read grant, or keys of other
            types. After a lease with `min_hold`, the value stays True until the end of `min_hold`.
        token: The token of the quorum, or else the most frequent token. None if no node has a
            token, or if keys of other types are on more nodes than any token.
        nodes: Number of nodes with that token. If a quorum has a read grant, the number of nodes
            with the most frequent read grant. If `token` is None because of keys of other types,
            the number of nodes with such keys.
        total: Number of all nodes.
        remaining: Seconds until fewer nodes than a quorum have the key, if the lease is not
            renewed. For a quorum of q nodes, the value is the q-th largest remaining time among the
            nodes. A node without an answer counts as 0. Infinite for keys without expiry. 0.0 if
            `held` is False, also while the lock is offered.
        answers: The answer of each node.
        owner: The holder's label. None if the holder has written no label yet, or writes none.
        waiting: Number of clients in the queue: the lower median of the numbers that nodes report.
            The maximum is not used, because a node that was cut off may still have dead processes
            in its queue. A process counts once for each set of names that its tasks wait for. With
            `fair=True` each task of the process counts. Clients without a place in the queue are
            not counted, for example those of other libraries. None if no node reports a number.
        offered: True if nobody holds the lock and a node reserves its key for a waiter.
        over: True if the lease of the token has ended, and `min_hold` keeps the lock. `owner` then
            names the last holder.
        readers: The read grants of a read-write lock, the longest remaining time first. If there
            are read grants, `token` is None, and `owner` and `remaining` are those of the first
            grant.
    """

    resource: str
    held: bool
    token: str | None = field(repr=False)
    nodes: int
    total: int
    remaining: float
    answers: tuple[NodeAnswer, ...]
    owner: Owner | None = None
    waiting: int | None = None
    offered: bool = False
    over: bool = False
    readers: tuple[ReaderInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class SemaphoreInfo:
    """The state of a semaphore, from the answers of all nodes.

    Attributes:
        resource: The semaphore's name.
        limit: Number of slots about which the nodes were asked.
        held: Number of slots that are held, including slots that `min_hold` keeps after the
            release.
        waiting: Number of clients that wait for a slot: the lower median of the numbers that nodes
            report. Clients to which a node offers a slot now are included. A process that waits
            with several limits counts once for each limit. With `fair=True` each task of the
            process counts. None if no node reports a number.
        slots: The state of each slot, from slot 1 upwards. The `resource` of slot 1 is the
            semaphore's name with "#1". The `waiting` of a slot counts the clients that wait for the
            semaphore, and the clients that wait for an ordinary lock with the slot's name.
    """

    resource: str
    limit: int
    held: int
    waiting: int | None
    slots: tuple[LockInfo, ...]


@dataclass(frozen=True, slots=True)
class Queued:
    """A place of this process in the nodes' queues for one lock.

    Attributes:
        resource: The lock's name. Several names are joined by ", " in the order of their keys. The
            place is in the queue of the first of these names that is not available.
        ticket: The number of the place. Lower numbers are served first.
        rank: Number of clients before this place: the lower median of the nodes' latest reports.
            None if no node has reported a number.
    """

    resource: str
    ticket: int
    rank: int | None


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of one manager since its opening, and its present state.

    Attributes:
        acquired: Leases granted.
        attempts: Attempts to acquire locks.
        refused: Attempts that no quorum granted in time.
        unreachable: Attempts that reached no quorum, after which the caller continued to wait.
        timeouts: Acquisitions that ended by `blocking_timeout`.
        cancelled: Acquisitions whose caller was cancelled.
        released: Leases released by their holder.
        lost: Leases lost, including leases whose release found the loss.
        stalled: Lost leases that were not renewed because the event loop did not run in time.
        renewals: Renewals that a quorum confirmed, counted per lease.
        renewals_failed: Renewals that no quorum confirmed in time.
        hand_overs: Ends of leases that let a waiting task of this process continue in the same
            tick: the task received the grant, or began an attempt.
        passed_on: Leases that a task received without a request to the nodes, because another task
            passed its grant on. Readers that share a grant count as well.
        wakeups: Attempts that waiters began because messages or answers of nodes said that a quorum
            may grant.
        wakeups_expiry: Attempts that waiters began because the remaining time of a holder or an
            offer was over.
        wakeups_fallback: Attempts that waiters began because no quorum had answered the request
            that keeps their place in the queues. While no quorum can notify a waiter, each such
            request counts as well.
        woken_attempts: Attempts that waiters began after a wake-up of any kind.
        second_rounds: Attempts whose fence needed a second round.
        repairs: Keys or fences restored on nodes.
        held: Leases held now.
        waiting: Acquisitions that request a lock, or wait for a lock, now.
        standing: Places in the nodes' queues now. Tasks of this process that wait for the same
            names share one place, and only one of them sends requests. With `fair=True` each task
            has its own place.
        queued: One record for each place that `standing` counts. To count the waiting clients of
            all processes, use `inspect`.
    """

    acquired: int
    attempts: int
    refused: int
    unreachable: int
    timeouts: int
    cancelled: int
    released: int
    lost: int
    stalled: int
    renewals: int
    renewals_failed: int
    hand_overs: int
    passed_on: int
    wakeups: int
    wakeups_expiry: int
    wakeups_fallback: int
    woken_attempts: int
    second_rounds: int
    repairs: int
    held: int
    waiting: int
    standing: int
    queued: tuple[Queued, ...]
