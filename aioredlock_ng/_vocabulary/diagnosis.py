"""Define the records of the doctor, `Redlock.diagnose`. The module `records` exports them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

__all__ = [
    "ClockReading",
    "Diagnosis",
    "Finding",
    "NodeFacts",
    "Refused",
    "RoundTrips",
    "Severity",
]


class Severity(StrEnum):
    """The possible severities of a finding, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of the doctor.

    Attributes:
        code: The kind of finding, for example "eviction-policy". docs/operations.md explains each
            kind.
        severity: "error": the fact breaks a promise of the lock, or stops a node from voting.
            "warning": the fact weakens a promise. "info": the fact is useful to know.
        nodes: Addresses of the nodes concerned. Empty if the finding concerns the whole set of
            nodes.
        what: The observation.
        meaning: The consequence for locks.
        remedy: The action to take.
    """

    code: str
    severity: Severity
    nodes: tuple[str, ...]
    what: str
    meaning: str
    remedy: str


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Round-trip times of a node in seconds, with percentiles by nearest rank.

    Attributes:
        count: Number of measured round trips.
        p50: Half of the measured round trips took at most this time.
        p95: 95 % of the measured round trips took at most this time.
        p99: 99 % of the measured round trips took at most this time. If `count` is below 100, this
            is the slowest of them.
    """

    count: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The result of two readings of a node's clock. Faster round trips give smaller errors.

    Attributes:
        offset: Seconds by which the node's clock is ahead of this machine's wall clock.
        offset_error: Largest error of `offset` in seconds, in both directions.
        rate: Seconds by which the node's clock advanced per second of this machine's steady clock.
        rate_error: Largest error of `rate` in the same unit, in both directions.
    """

    offset: float
    offset_error: float
    rate: float
    rate_error: float


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that a server refused during the examination.

    Attributes:
        step: The request. Examples are "SCRIPT LOAD", "script acquire" for a script, and "command
            GET" for a command that scripts call.
        words: The server's error message.
    """

    step: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The doctor's observations of one node. None and "" usually mean "unknown".

    Attributes:
        address: The node's address without credentials.
        problem: Code of the finding that ended the examination early. "" if the examination was
            complete.
        words: The reason why the examination ended early.
        endpoint: The server's end of the connection: `address:port` with the host name resolved, or
            the path of a Unix socket.
        server: Name and version of the server.
        run_id: Id of the server process.
        role: "master" or "slave". The text is the server's own, and is not checked. It is "slave",
            too, if the server refuses a request because it is a replica.
        primary: Address of the primary if the node is a replica.
        cluster: True if the server runs in cluster mode.
        unknown: Commands that the library needs and the server lacks.
        uptime: Seconds since the server's start, by its own clock.
        replicas: Number of attached replicas.
        maxmemory: The memory limit in bytes. 0: no limit.
        maxmemory_policy: The server's eviction policy, which applies at the memory limit.
        evicted_keys: Number of keys evicted since the server's statistics began.
        aof: True if the server keeps an append-only file.
        fsync: The flush policy of the append-only file: "always", "everysec" or "no". The text is
            the server's own, and is not checked.
        failing: The INFO fields that report a failed write to disk.
        resp3: True if the server speaks RESP3.
        tracking: True if the server sends notifications of changed keys.
        messages: True if a message that the doctor published came back. None without RESP3.
        granted: True if the node granted a lock on the doctor's own key. A quarantined node grants
            this lock as well, because the doctor's request ignores the quarantine.
        trust: State of the node's marker for the recovery guard: "trusted", "waiting", "founding",
            "foreign", "excessive" or "none". A foreign marker names another server process. An
            excessive marker names a guard time above 86,401 s.
        ready_in: Seconds until the node may be trusted, according to its marker.
        marked_max_ttl: The `max_ttl` in the node's marker, in seconds. None if the marker names no
            valid one. A manager with a longer `max_ttl` lets a waiting node wait anew.
        sampled_keys: Number of sampled keys. Keys of the library itself are not counted. None if
            `key_format` is not the default, or if the server refuses SCAN.
        foreign_keys: The type of each sampled key that cannot be a lock. A lock's key
            always has an expiry. The key is a string or, while readers hold the lock, a sorted set.
        refusals: The refused requests, in the order in which they were sent.
        round_trips: Statistics of the measured round trips.
        clock: Comparison of the node's clock with the clocks of this machine.
    """

    address: str
    problem: Literal[
        "",
        "unreachable",
        "authentication",
        "unusable-client",
        "not-ready",
        "silent",
        "not-examined",
    ] = ""
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
    trust: Literal["", "trusted", "waiting", "founding", "foreign", "excessive", "none"] = ""
    ready_in: float | None = None
    marked_max_ttl: float | None = None
    sampled_keys: int | None = None
    foreign_keys: tuple[str, ...] = ()
    refusals: tuple[Refused, ...] = ()
    round_trips: RoundTrips | None = None
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of an examination of all nodes.

    Attributes:
        severity: The worst severity of all findings. None if there are no findings.
        findings: The findings, the worst first.
        nodes: The observations of each node, in the order of the manager's nodes.
    """

    severity: Severity | None
    findings: tuple[Finding, ...]
    nodes: tuple[NodeFacts, ...]
