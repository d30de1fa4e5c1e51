"""What operators get when they ask: plain frozen records without behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = [
    "ClockReading",
    "Diagnosis",
    "Finding",
    "LockInfo",
    "NodeAnswer",
    "NodeFacts",
    "Owner",
    "Queued",
    "Refused",
    "RoundTrips",
    "Severity",
    "Stats",
]


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What one node knows of a lock.

    Attributes:
        node: Its address.
        token: The value of the key, if it is a string; None where there is no key or no answer. It is
            not in the repr: with the whole token, anybody can release the lock.
        remaining: Seconds that the key has left; None where there is no key, no expiry or no answer.
        detail: Why there is no answer, or that the key is of another type than a lock.
        foreign: The type of a key that can be no lock of this library: "hash" and the like, "string"
            for one without expiry, "other" where the server does not say; "" for all else.
        waiting: How many wait for the key, by this node's queue; None where it does not say.
        offered: True if the key is kept for a waiter, `remaining` seconds at most. Nobody holds it.
    """

    node: str
    token: str | None = field(repr=False)
    remaining: float | None
    detail: str = ""
    foreign: str = ""
    waiting: int | None = None
    offered: bool = False


@dataclass(frozen=True, slots=True)
class Owner:
    """Who says that it holds a lock: the label that a lease writes beside its keys once it is a tenth of a second old.

    Attributes:
        label: Host, process and task, or what the option `owner` says.
        fence: The lease's fence; None without fencing.
        since: Since when, in seconds since 1970 by the holder's wall clock.
    """

    label: str
    fence: int | None
    since: float


@dataclass(frozen=True, slots=True)
class LockInfo:
    """Who holds a lock.

    Attributes:
        resource: Its name.
        held: True when a quorum of nodes holds the same token, or has keys of other types there:
            nobody can acquire it.
        token: That token, or the most frequent one; None when no node has one, or more nodes have
            keys of other types.
        nodes: How many nodes hold that token, or have such a key.
        total: How many nodes there are.
        remaining: Seconds until expiry alone takes the quorum away: the q-th largest remaining time, silent nodes
            counted as 0. Infinite for keys without expiry.
        answers: One per node.
        owner: Who holds it; None where the holder wrote no label, or has only just begun.
        waiting: How many wait for it, by the queues on the nodes: the (lower) median over the nodes
            that say. The maximum would count entries of processes that are gone, on a node that was
            cut off. A process counts once for each set of names, and each task with `fair=True`.
            Clients without a place in the queue are not counted, such as those of other libraries.
            None where no node says.
        offered: True if nobody holds it and a node keeps its key for a waiter: about to be held.
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


@dataclass(frozen=True, slots=True)
class Queued:
    """A place of this process in the queues of one lock on the nodes.

    Attributes:
        resource: The lock's name. Several names are joined by ", " in the order of their keys.
            Their place is in the queue of the first name that is not to be had.
        ticket: The number of the place. Lower numbers are served first.
        rank: How many stand before it: the (lower) median of the nodes' last answers and messages.
            A node answers a look, and sends a message once the place is the first. None if no
            node has answered.
    """

    resource: str
    ticket: int
    rank: int | None


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of one manager since it was opened, and its state now.

    Attributes:
        acquired: Leases granted.
        attempts: Rounds sent to get them.
        refused: Attempts that found no quorum free.
        unreachable: Refused attempts that could not ask a quorum.
        timeouts: Acquisitions that ended by `blocking_timeout`.
        cancelled: Acquisitions whose caller was cancelled.
        released: Leases given up by their holder.
        lost: Leases lost, and those whose release found that they had been lost.
        renewals: Leases renewed, summed over renewals.
        renewals_failed: Renewals that no quorum confirmed in time.
        handoffs: Leases handed to the next waiter of this process within the releasing tick.
        passed_on: Those of them whose grant the next waiter got as it was, without asking the nodes.
        wakeups: Waiters that asked because, by what nodes said, a quorum may grant.
        wakeups_expiry: Waiters that asked because the remaining time of a holder, or of an offer, was over.
        wakeups_fallback: Waiters that asked because no quorum of nodes answered their look.
        looks: Attempts after waiting, whatever woke them.
        second_rounds: Acquisitions whose fence took a second round trip.
        repairs: Keys or fences that nodes were given back.
        held: Leases held now.
        waiting: Acquisitions that contend or wait now.
        standing: Lines that stand in the nodes' queues now. Tasks of this process that want the same names are
            one line, of which one task asks; with `fair=True` each task is a line.
        queued: The place of each of these lines, as this process knows it. `inspect` counts all
            that wait for a lock.
    """

    acquired: int
    attempts: int
    refused: int
    unreachable: int
    timeouts: int
    cancelled: int
    released: int
    lost: int
    renewals: int
    renewals_failed: int
    handoffs: int
    passed_on: int
    wakeups: int
    wakeups_expiry: int
    wakeups_fallback: int
    looks: int
    second_rounds: int
    repairs: int
    held: int
    waiting: int
    standing: int
    queued: tuple[Queued, ...]


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the doctor found.

    Attributes:
        code: Which kind it is, such as "eviction-policy"; docs/operations.md explains every one.
        severity: An error breaks the lock's promises or stops a node from voting, a warning weakens them, an info is good
            to know.
        nodes: Addresses of the nodes that it is about; empty: the set as a whole.
        what: What was seen.
        meaning: What that means for the lock.
        remedy: What to do.
    """

    code: str
    severity: Severity
    nodes: tuple[str, ...]
    what: str
    meaning: str
    remedy: str


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """How long a node took to answer, in seconds; percentiles by nearest rank.

    Attributes:
        count: How many round trips were measured.
        p50: Half of them were as quick or quicker.
        p95: The like.
        p99: The like.
    """

    count: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A node's clock, read twice from here; a round trip bounds what is known of it.

    Attributes:
        offset: Seconds that it is ahead of this machine's wall clock.
        offset_error: Seconds by which that may be wrong either way.
        rate: Seconds that it advanced in one second of this machine's steady clock.
        rate_error: By which share of it that may be wrong either way.
    """

    offset: float
    offset_error: float
    rate: float
    rate_error: float


@dataclass(frozen=True, slots=True)
class Refused:
    """What a server refused while it was examined.

    Attributes:
        step: What was tried: "SCRIPT LOAD", "script acquire", or "command GET" for one that scripts call.
        words: The server's own.
    """

    step: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What the doctor saw of one node; None and "" where it does not say or could not be asked.

    Attributes:
        address: Where it is, without credentials.
        problem: Code of the finding that ended the examination; "" when it was complete.
        words: Why it ended.
        endpoint: Where the connection led: `address:port` with the name resolved, or the path of a socket.
        server: Name and version.
        run_id: Id of the server process.
        role: "master" or "slave", as servers say.
        primary: Of a replica: where its primary is.
        cluster: Whether it runs in cluster mode.
        unknown: Commands that it does not know, of those that the library cannot do without.
        uptime: Seconds since its start, by its own clock.
        replicas: How many replicas are attached.
        maxmemory: Its limit in bytes; 0: none.
        maxmemory_policy: What it does at the limit.
        evicted_keys: How many keys it has evicted since its start.
        aof: Whether it keeps an append-only file.
        fsync: When that is flushed to disk: "always", "everysec" or "no".
        failing: What of its persistence failed the last time, as INFO names it.
        resp3: Whether it speaks RESP3.
        tracking: Whether it tells about changed keys.
        messages: Whether a message that was published there arrived. None without RESP3.
        granted: Whether it granted a lock on a key of the doctor's own, quarantined or not.
        trust: What its marker says to the recovery guard: "trusted", "waiting", "founding", "foreign" (another server
            process's), "excessive" (it names a guard time above a day and a second), or "none".
        ready_in: Seconds until it may be trusted.
        sampled_keys: How many of its keys were looked at, the library's own aside; None where locks
            have a `key_format` of their own, or the rights to look are missing.
        foreign_keys: The type of each of them that can be no lock: not a string, or without expiry.
        refusals: What it refused, in the order of asking.
        round_trips: How long it takes to answer.
        clock: Its clock.
    """

    address: str
    problem: str = ""
    words: str = ""
    endpoint: str = ""
    server: str = ""
    run_id: str = ""
    role: str = ""
    primary: str = ""
    cluster: bool | None = None
    unknown: tuple[str, ...] = ()
    uptime: float | None = None
    replicas: int | None = None
    maxmemory: int | None = None
    maxmemory_policy: str = ""
    evicted_keys: int | None = None
    aof: bool | None = None
    fsync: str = ""
    failing: tuple[str, ...] = ()
    resp3: bool | None = None
    tracking: bool | None = None
    messages: bool | None = None
    granted: bool | None = None
    trust: str = ""
    ready_in: float | None = None
    sampled_keys: int | None = None
    foreign_keys: tuple[str, ...] = ()
    refusals: tuple[Refused, ...] = ()
    round_trips: RoundTrips | None = None
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What weakens a set of nodes.

    Attributes:
        severity: The worst of all findings; None when there are none.
        findings: The worst first.
        nodes: What was seen of each node, in the order given.
    """

    severity: Severity | None
    findings: tuple[Finding, ...]
    nodes: tuple[NodeFacts, ...]
