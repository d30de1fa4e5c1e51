"""A run as its histories tell it; it reads nothing else, and judges nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .history import NANO, read

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["FOREVER", "Hold", "Intervals", "Record", "load"]

FOREVER: Final = 2**63


@dataclass(slots=True)
class Hold:
    """One lock, from the moment when its holder had it. Instants are nanoseconds.

    Attributes:
        process: Whose.
        number: Within the process.
        names: What is locked.
        how: The way it was asked for.
        asked: When.
        got: When it was there.
        deadline: Up to which its library vouched for it, as last said; `FOREVER` where it does not say.
        fence: As given.
        token: How its value begins.
        votes: How many nodes held it, as last said before its end; 0 where its library does not say.
        said: When that was.
        most: The most nodes that ever held it, as said.
        lost: When the holder was told that it is lost; None: never.
        why: In the library's words.
        ended: When the holder was done, before it released; None: its process was killed.
        gone: When its release was found to have come too late, which nobody had told.
        plain: Writes to plain registers: name, id read before, id written, instant.
        fenced: Writes to fenced ones: name, id read before, id written, outcome, instant.
    """

    process: str
    number: int
    names: list[str]
    how: str
    asked: int
    got: int
    deadline: int
    fence: int | None
    token: str
    votes: int
    said: int
    most: int
    lost: int | None = None
    why: str = ""
    ended: int | None = None
    gone: int | None = None
    killed: int | None = None
    plain: list[list[Any]] = field(default_factory=list)
    fenced: list[list[Any]] = field(default_factory=list)

    @property
    def vouched(self) -> int:
        """Up to when its holder could rely on it: its deadline, being told, or being killed."""
        return min(self.deadline, self.lost or FOREVER, self.killed or FOREVER)

    @property
    def until(self) -> int:
        """Up to when it was held: `vouched`, or the release."""
        return min(self.vouched, self.ended or FOREVER)


class Intervals:
    """Spans of time that may overlap; asked whether any of them touches another span."""

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._merged: list[tuple[int, int]] = []
        for begin, end in sorted(spans):
            if self._merged and begin <= self._merged[-1][1]:
                self._merged[-1] = (self._merged[-1][0], max(end, self._merged[-1][1]))
            else:
                self._merged.append((begin, end))
        self._begins = [begin for begin, _ in self._merged]

    def touch(self, begin: int, end: int) -> bool:
        """Whether one of them has an instant in common with this span."""
        index = bisect_right(self._begins, end) - 1
        return index >= 0 and self._merged[index][1] >= begin

    def seconds(self, begin: int, end: int) -> float:
        """How much of a span they cover."""
        return sum(max(0, min(end, b) - max(begin, a)) for a, b in self._merged) / NANO


@dataclass
class Record:
    """Everything that happened.

    Attributes:
        holds: Of all processes.
        fails: Acquisitions that ended without the lock, each with its process.
        cut: Acquisitions that their own caller cancelled.
        faults: What was done to nodes: kind, nodes, and the instants of its begin, its end, and of being well again.
        still: By process: when it stood still, stopped or late by itself. "relay" is the way to all nodes.
        killed: By process: when.
        writers: The process of each number, which the ids of writes begin with.
        stopped: Processes that the nemesis stopped: which, and from when to when.
        late: Client processes that saw themselves stand still, whoever did it: the same.
        deletes: Locks that were taken away on purpose.
        leftovers: Keys on nodes while all clients were at rest: instant, node, keys.
        looks: The same while all work: only keys without an end, or with one too late.
        rests: How many times all were at rest, and every node was looked at.
        errors: What should never happen: instant, process, what.
        begin: The first instant.
        over: The last.
    """

    nodes: int = 5
    ttl: float = 1.5
    holds: list[Hold] = field(default_factory=list)
    fails: list[dict[str, Any]] = field(default_factory=list)
    cut: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    still: dict[str, Intervals] = field(default_factory=dict)
    killed: dict[str, int] = field(default_factory=dict)
    writers: dict[int, str] = field(default_factory=dict)
    stopped: list[tuple[str, int, int]] = field(default_factory=list)
    late: list[tuple[str, int, int]] = field(default_factory=list)
    deletes: list[dict[str, Any]] = field(default_factory=list)
    leftovers: list[dict[str, Any]] = field(default_factory=list)
    looks: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    begin: int = 0
    over: int = 0

    def stood_still(self, process: str, begin: int, end: int) -> bool:
        """Whether a process, or the way to all nodes, stood still in a span."""
        return any(who in self.still and self.still[who].touch(begin, end) for who in (process, "relay"))

    def machine_stood_still(self) -> Intervals:
        """When three client processes at once stood still that the nemesis had not stopped: the servers did not run either."""
        changes = []
        for begin, end in self.stood_still_unstopped():
            changes += [(begin, 1), (end, -1)]
        spans, count = [], 0
        for at, step in sorted(changes):
            count += step
            if count == _MANY and step == 1:
                spans.append([at, at])
            elif count == _MANY - 1 and step == -1:
                spans[-1][1] = at
        return Intervals((begin, end) for begin, end in spans)

    def stood_still_unstopped(self) -> list[tuple[int, int]]:
        """When a client process stood still that the nemesis had not stopped."""
        return [
            (begin, end)
            for process, begin, end in self.late
            if not any(stop < end and go > begin for stop, go in self.stops_of(process))
        ]

    def stops_of(self, process: str) -> list[tuple[int, int]]:
        """When the nemesis stopped a process."""
        return [(begin, end) for who, begin, end in self.stopped if who == process]

    @property
    def minority(self) -> int:
        """So many nodes, or fewer, are no majority."""
        return (self.nodes - 1) // 2

    def lacks_majority(self, without: set[int]) -> bool:
        """True when the other nodes are none."""
        return self.nodes - len(without) <= self.minority

    def unwell(self) -> Intervals:
        """When less than a majority of nodes was well."""
        changes: list[tuple[int, int, int]] = []
        for fault in self.faults:
            for node in fault["n"]:
                changes += [(fault["t"], 1, node), (fault.get("well", FOREVER), -1, node)]
        count: dict[int, int] = defaultdict(int)
        bad: list[tuple[int, int]] = []
        since, most = 0, self.minority
        for at, step, node in sorted(changes):
            count[node] += step
            impaired = sum(value > 0 for value in count.values())
            if impaired > most and not since:
                since = at
            elif impaired <= most and since:
                bad.append((since, at))
                since = 0
        if since:
            bad.append((since, FOREVER))
        return Intervals(bad)


_MANY: Final = 3

_GRACE: Final = NANO // 5
"""After it was let go on, a process has a backlog to work off before it is as quick as ever."""


_BUSY: Final = 0.5
"""Share of a standstill that a process computed: one of that much is of its own making, and no excuse."""


def load(folder: Path) -> Record:
    """Read every history of a folder."""
    record = Record()
    still: dict[str, list[tuple[int, int]]] = defaultdict(list)
    _load_nemesis(record, folder / "nemesis.jsonl", still)
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem != "nemesis":
            _load_process(record, path, still)
    record.still = {process: Intervals(spans) for process, spans in still.items()}
    return record


def _load_nemesis(record: Record, path: Path, still: dict[str, list[tuple[int, int]]]) -> None:
    faults: dict[int, dict[str, Any]] = {}
    stopped: dict[str, int] = {}
    for line in read(path):
        at = record.over = line["t"]
        match line["e"]:
            case "begin":
                record.begin, record.nodes, record.ttl = at, line["nodes"], line["ttl"]
            case "fault":
                faults[line["i"]] = line
            case "heal" | "well" as word:
                faults[line["i"]][word] = at
            case "stop":
                stopped[line["p"]] = at
            case "cont":
                record.stopped.append((line["p"], stopped[line["p"]], at))
                still[line["p"]].append((stopped.pop(line["p"]) - _GRACE, at + _GRACE))
            case "kill":
                record.killed[line["p"]] = at
            case "delete":
                record.deletes.append(line | {"t": line["s"]})
            case "leftovers":
                record.leftovers.append(line)
            case "look":
                record.looks.append(line)
            case "stuck":
                record.errors.append(line | {"why": "did not end in good order"})
    record.faults = list(faults.values())


def _votes(line: dict[str, Any]) -> int:
    return int((line["v"] or "0").partition("/")[0])


def _load_process(record: Record, path: Path, still: dict[str, list[tuple[int, int]]]) -> None:
    process = path.stem
    open_holds: dict[int, Hold] = {}
    for line in read(path):
        at = line["t"]
        match line["e"]:
            case "got":
                until = line["d"] or FOREVER
                number = line["i"]
                votes = _votes(line)
                hold = Hold(process, number, line["n"], line["w"], line["a"], at, until, line["f"], line["k"], votes, at, votes)
                open_holds[number] = hold
                record.holds.append(hold)
            case "held":
                hold = open_holds[line["i"]]
                if hold.lost is None:
                    hold.deadline, hold.votes, hold.said = line["d"] or FOREVER, _votes(line), at
                    hold.most = max(hold.most, hold.votes)
            case "end":
                hold = open_holds[line["i"]]
                hold.ended, hold.plain, hold.fenced = at, line["p"], line["x"]
                hold.deadline = line["d"] or FOREVER
                if line["l"] and hold.lost is None:
                    hold.lost, hold.why = at, line["l"]
            case "lost":
                hold = open_holds[line["i"]]
                hold.lost, hold.why, hold.deadline = at, line["why"], line["d"] or FOREVER
            case "gone":
                open_holds[line["i"]].gone = at
            case "fail":
                record.fails.append(line | {"p": process})
            case "cut":
                record.cut.append(line | {"p": process})
            case "stall":
                if line.get("c", 0) > _BUSY * (at - line["s"]):
                    words = f"its event loop stood still for {(at - line['s']) / 1e6:.0f} ms by its own computing"
                    record.errors.append(line | {"p": process, "why": words})
                    continue
                still[process].append((line["s"], at + _GRACE))
                if process != "relay":
                    record.late.append((process, line["s"], at))
            case "error":
                record.errors.append(line | {"p": process})
            case "start":
                record.writers[line.get("of", 0)] = process
    killed = record.killed.get(process)
    for hold in open_holds.values():
        if hold.ended is None:
            hold.killed = killed
            if killed is None:
                record.errors.append({"t": hold.got, "p": process, "why": f"hold {hold.number} never ended"})
