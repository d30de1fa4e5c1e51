"""The findings and the figures of a run. It knows no rules."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .history import NANO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .record import Record

__all__ = ["Finding", "Judgement", "percentile", "summary", "worst"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken promise, or an event that is not promised.

    Attributes:
        kind: The rule.
        at: Instant, ns.
        what: Description for people.
    """

    kind: str
    at: int
    what: str


@dataclass
class Judgement:
    """All findings, and what was measured on the way.

    Attributes:
        violations: Promises that were broken.
        beyond: Events that break no promise, with the reason as part of the kind.
        notices: Nanoseconds from the deletion of a lock's keys to the notice of its holder, for
            leases that are watched.
        notices_young: The same for leases that are too young to be watched.
        notices_readers: The same for readers, which are notified by their next renewal.
        hand_overs: Nanoseconds from the release of a lock to the hold of a process that waited.
        ended_first: Holders that released the lock, or were killed, before the notice.
        asked_well: Acquisitions that began and ended while a majority was well.
        got_well: Number of these acquisitions that got the lock.
        held_well: Single attempts that found another holder, which is an answer and no failure.
        stood_still: Failures while the process, the relay or the machine stood still.
        late: Writes to plain registers by holders whose lock was over.
        refused: Writes and first reads that the fenced register refused.
        late_fenced_accepted: Late writes that the fenced register accepted. They are harmless,
            because no later holder had used the register.
        overlap_longest: Longest permitted overlap of two holds, ns.
        overtaken_most: Grants that passed a waiter, beyond twice the number of clients that waited.
        writers_first_most: Write grants that passed a waiting reader.
        readers_first_most: Read grants that passed a waiting writer, beyond one for each process
            that reads and each turn.
    """

    violations: list[Finding] = field(default_factory=list)
    beyond: list[Finding] = field(default_factory=list)
    notices: list[int] = field(default_factory=list)
    notices_young: list[int] = field(default_factory=list)
    notices_readers: list[int] = field(default_factory=list)
    hand_overs: list[int] = field(default_factory=list)
    ended_first: int = 0
    asked_well: int = 0
    got_well: int = 0
    held_well: int = 0
    stood_still: int = 0
    late: int = 0
    refused: int = 0
    late_fenced_accepted: int = 0
    overlap_longest: int = 0
    overtaken_most: int = 0
    writers_first_most: int = 0
    readers_first_most: int = 0
    fenced_writes: int = 0
    plain_writes: int = 0


def worst(findings: list[Finding]) -> Iterator[tuple[str, list[Finding]]]:
    """Yield findings by kind, the most frequent kind first."""
    kinds: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        kinds[finding.kind].append(finding)
    yield from sorted(kinds.items(), key=lambda item: -len(item[1]))


def percentile(values: list[int], share: float) -> float | None:
    """By nearest rank, in milliseconds; None without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6 if ordered else None


def summary(record: Record) -> dict[str, Any]:
    """The figures of a run, for a table."""
    kinds: dict[str, int] = defaultdict(int)
    for fault in record.faults:
        kinds[fault["k"]] += len(fault["n"])
    unwell = record.unwell()
    return {
        "seconds": (record.over - record.begin) / NANO,
        "acquired": len(record.holds),
        "acquired_kinds": _kinds(record),
        "node_faults": dict(sorted(kinds.items())),
        "stops": len(record.stopped),
        "kills": len(record.killed),
        "deletes": len(record.deletes),
        "faults": sum(kinds.values()) + len(record.stopped) + len(record.killed),
        "seconds_without_majority": unwell.seconds(record.begin, record.over),
        "cut": len(record.cut),
        "stood_still": sum(end - begin for begin, end in record.stood_still_unstopped()) / NANO,
        "rests": len(record.leftovers),
    }


_PLURALS: Final = {
    "lock": "locks",
    "semaphore": "slots",
    "election": "terms",
    "read": "reads",
    "write": "writes",
}


def _kinds(record: Record) -> dict[str, int]:
    """Return how many holds were of each kind, and used each option."""
    kinds: dict[str, int] = defaultdict(int)
    for hold in record.holds:
        kinds[_PLURALS[hold.kind]] += 1
        kinds["downgrades"] += hold.downgraded is not None
        kinds["sets"] += len(hold.names) > 1
        kinds["min_hold"] += hold.min_hold > 0
        kinds["fair"] += hold.fair
    return dict(kinds)
