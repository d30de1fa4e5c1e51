"""Reads the histories of a run. It judges nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .history import NANO, read

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["FOREVER", "Hold", "Intervals", "Record", "load", "who"]

FOREVER: Final = 2**63


@dataclass(slots=True)
class Hold:
    """One hold of a lock, from the moment when its holder had it. Instants are nanoseconds.

    Attributes:
        process: Name of the holder's process.
        number: Number of the hold within the process.
        names: The locked names. For a semaphore, the name of the slot, such as "seat:0#2".
        how: How the body learns of a loss, and whether the acquisition waited (`clients.port.How`).
        asked: Instant of the call.
        got: Instant at which the holder had the lock.
        deadline: Its end as last reported; `FOREVER` if its library reports none.
        fence: The fence of the lease.
        token: The first characters of the token.
        granted: Number of nodes that held it, as first reported; None: not reported.
        votes: Number of nodes that held it, as last reported before its end; 0: not reported.
        said: Instant of that report.
        most: Greatest number of nodes in all reports.
        kind: "lock", "semaphore" or "election"; "read" and "write" for a read-write lock.
        limit: Number of slots of a semaphore, as its holder asked; 0 for the other kinds.
        slot: Slot of a semaphore; 0 for the other kinds.
        since: Instant before the attempt that was granted; `got` where its library does not say.
        min_hold: Nanoseconds after the grant for which no other client may be granted; 0: none.
        fair: True if it was asked for with `fair=True`.
        lost: Instant at which the holder was notified of the loss; None: never.
        over: Instant at which the library declared the loss, perhaps while the body blocked its
            loop; None: not reported.
        why: The reason of the loss, in the library's words.
        ended: Instant at which the body ended, before the release; None: its process was killed.
        gone: Instant at which a release found that the lock was gone, without an earlier notice.
        plain: Writes to plain registers: name, id read before, id written, instant.
        fenced: Writes to fenced registers: name, id read before, id written, outcome, instant.
        reads: Reads of a reader: name, "plain" or "fenced", id at the beginning of its hold, id
            at the end, instant of the latter. After a downgrade the first id is that of its write.
        downgraded: Instant just before a writer asked to become a reader.
        read_fence: The fence from then on; None: not reported.
        read: True once the writer reported that it is a reader.
        promised: Greatest number of nanoseconds from a report to the deadline in this report; 0:
            not reported.
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
    granted: int | None = None
    kind: str = "lock"
    limit: int = 0
    slot: int = 0
    since: int = 0
    min_hold: int = 0
    fair: bool = False
    lost: int | None = None
    over: int | None = None
    why: str = ""
    ended: int | None = None
    gone: int | None = None
    killed: int | None = None
    plain: list[list[Any]] = field(default_factory=list)
    fenced: list[list[Any]] = field(default_factory=list)
    reads: list[list[Any]] = field(default_factory=list)
    downgraded: int | None = None
    read_fence: int | None = None
    read: bool = False
    promised: int = 0

    def shares(self, at: int) -> bool:
        """Return True if other readers may have the lock too, from this instant on."""
        return self.kind == "read" or (self.downgraded is not None and self.downgraded <= at)

    @property
    def vouched(self) -> int:
        """End of the time for which its holder could rely on it: the deadline, the loss, or the
        kill.
        """
        ends = (self.deadline, self.lost, self.over, self.killed)
        return min(end or FOREVER for end in ends)

    @property
    def until(self) -> int:
        """End of the hold: `vouched`, or the release."""
        return min(self.vouched, self.ended or FOREVER)

    @property
    def kept(self) -> int:
        """Instant before which `min_hold` certainly keeps the names taken; 0 without it."""
        return self.since + self.min_hold if self.min_hold else 0

    @property
    def worked(self) -> int:
        """Instant at which the body ended, although the lease may have ended before."""
        return min(self.ended or FOREVER, self.killed or FOREVER)

    @property
    def semaphore(self) -> str:
        """Name of the semaphore; "" for the other kinds."""
        return self.names[0].rpartition("#")[0] if self.slot else ""


class Intervals:
    """Spans of time, which may overlap."""

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._merged: list[tuple[int, int]] = []
        for begin, end in sorted(spans):
            if self._merged and begin <= self._merged[-1][1]:
                self._merged[-1] = (self._merged[-1][0], max(end, self._merged[-1][1]))
            else:
                self._merged.append((begin, end))
        self._begins = [begin for begin, _ in self._merged]

    def touch(self, begin: int, end: int) -> bool:
        """Return True if one of them has an instant in common with this span."""
        index = bisect_right(self._begins, end) - 1
        return index >= 0 and self._merged[index][1] >= begin

    def seconds(self, begin: int, end: int) -> float:
        """Return the seconds of a span that they cover."""
        return sum(max(0, min(end, b) - max(begin, a)) for a, b in self._merged) / NANO


@dataclass
class Record:
    """All events of a run.

    Attributes:
        life: Seconds that a key of a lock lives at most: the ttl, or longer for a `min_hold`.
        holds: The holds of all processes.
        fails: Acquisitions that ended without the lock, each with its process.
        cut: Acquisitions that their own caller cancelled.
        amid: Acquisitions whose process was killed before they ended; "t" is the instant of the
            kill.
        faults: Faults of nodes: kind, nodes, and the instants of begin, end, and recovery.
        still: Spans in which a process stood still, by process. "relay" is the way to all nodes.
        blocked: Spans in which the event loop of the bodies stood still, but not the engine.
        killed: Instants of the kills, by process.
        silent: Instants from which the event loop of a process was blocked until its kill, by
            process.
        writers: The process of each number with which the ids of writes begin.
        ours: The processes that use our library.
        stopped: Stops by the nemesis: process, begin and end.
        late: Standstills that client processes saw themselves, of any cause: process, begin and
            end.
        deletes: Deletions of the keys of locks, on purpose.
        leftovers: Keys on nodes while all clients rest: instant, node, keys.
        looks: Keys without an end, or with one too late, while clients work: instant, node, keys.
        errors: Events that should never happen: instant, process, reason.
        begin: The first instant.
        over: The last instant.
    """

    nodes: int = 5
    ttl: float = 1.5
    life: float = 1.5
    holds: list[Hold] = field(default_factory=list)
    fails: list[dict[str, Any]] = field(default_factory=list)
    cut: list[dict[str, Any]] = field(default_factory=list)
    amid: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    still: dict[str, Intervals] = field(default_factory=dict)
    blocked: dict[str, Intervals] = field(default_factory=dict)
    killed: dict[str, int] = field(default_factory=dict)
    silent: dict[str, int] = field(default_factory=dict)
    writers: dict[int, str] = field(default_factory=dict)
    ours: set[str] = field(default_factory=set)
    stopped: list[tuple[str, int, int]] = field(default_factory=list)
    late: list[tuple[str, int, int]] = field(default_factory=list)
    deletes: list[dict[str, Any]] = field(default_factory=list)
    leftovers: list[dict[str, Any]] = field(default_factory=list)
    looks: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    begin: int = 0
    over: int = 0

    def stood_still(self, process: str, begin: int, end: int) -> bool:
        """Return True if a process, or the way to all nodes, stood still in a span."""
        return any(
            who in self.still and self.still[who].touch(begin, end) for who in (process, "relay")
        )

    def body_stood_still(self, process: str, begin: int, end: int) -> bool:
        """Return True if the bodies of a process or the way to all nodes stood still in a span."""
        blocked = process in self.blocked and self.blocked[process].touch(begin, end)
        return blocked or self.stood_still(process, begin, end)

    def machine_stood_still(self) -> Intervals:
        """Return the spans in which three client processes at once stood still without the nemesis.

        The servers did not run either then.
        """
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
        """Return the spans in which a client process stood still without the nemesis."""
        return [
            (begin, end)
            for process, begin, end in self.late
            if not any(stop < end and go > begin for stop, go in self.stops_of(process))
        ]

    def stops_of(self, process: str) -> list[tuple[int, int]]:
        """Return the spans for which the nemesis stopped a process."""
        return [(begin, end) for who, begin, end in self.stopped if who == process]

    @property
    def minority(self) -> int:
        """Greatest number of nodes that is no majority."""
        return (self.nodes - 1) // 2

    def lacks_majority(self, without: set[int]) -> bool:
        """Return True if the nodes without these are no majority."""
        return self.nodes - len(without) <= self.minority

    def unwell(self) -> Intervals:
        """Return the spans in which less than a majority of nodes was well."""
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


def who(hold: Hold) -> str:
    """Return the holder's process, and the number of the hold."""
    return f"{hold.process}#{hold.number}"


_MANY: Final = 3

_GRACE: Final = NANO // 5
"""Nanoseconds after a standstill in which a process works off its backlog."""


_BUSY: Final = 0.5
"""Share of a standstill. A process that computed for it has blocked its own loop: no excuse."""


def load(folder: Path) -> Record:
    """Read every history of a folder."""
    record = Record()
    still: dict[str, list[tuple[int, int]]] = defaultdict(list)
    blocked: dict[str, list[tuple[int, int]]] = defaultdict(list)
    _load_nemesis(record, folder / "nemesis.jsonl", still)
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem != "nemesis":
            _load_process(record, path, still, blocked)
    record.still = {process: Intervals(spans) for process, spans in still.items()}
    record.blocked = {process: Intervals(spans) for process, spans in blocked.items()}
    return record


def _load_nemesis(record: Record, path: Path, still: dict[str, list[tuple[int, int]]]) -> None:
    faults: dict[int, dict[str, Any]] = {}
    stopped: dict[str, int] = {}
    for line in read(path):
        at = record.over = line["t"]
        match line["e"]:
            case "begin":
                record.begin, record.nodes, record.ttl = at, line["nodes"], line["ttl"]
                record.life = line.get("life", record.ttl)
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


def _hold(process: str, line: dict[str, Any]) -> Hold:
    at, votes, slot = line["t"], _votes(line), line.get("s", 0)
    return Hold(
        process=process,
        number=line["i"],
        names=[f"{line['n'][0]}#{slot}"] if slot else line["n"],
        how=line["w"],
        asked=line["a"],
        got=at,
        deadline=line["d"] or FOREVER,
        fence=line["f"],
        token=line["k"],
        votes=votes,
        said=at,
        most=votes,
        granted=votes if line["v"] else None,
        kind=line.get("c", "lock"),
        limit=line.get("m", 0),
        slot=slot,
        since=line.get("b", at),
        min_hold=int(line.get("h", 0.0) * NANO),
        fair=line.get("fair", False),
    )


def _without(process: str, line: dict[str, Any]) -> dict[str, Any]:
    """Return the line of a failed acquisition, with the slots of a semaphore as names."""
    slots = [f"{line['n'][0]}#{slot}" for slot in range(1, line.get("m", 0) + 1)]
    return line | {"p": process, "n": slots or line["n"]}


def _load_process(
    record: Record,
    path: Path,
    still: dict[str, list[tuple[int, int]]],
    blocked: dict[str, list[tuple[int, int]]],
) -> None:
    process = path.stem
    open_holds: dict[int, Hold] = {}
    asks: dict[int, dict[str, Any]] = {}
    longest: dict[int, int] = {}
    blocks: int | None = None
    for line in read(path):
        at = line["t"]
        if line["e"] != "stall":
            # Only a thread that watches the process can write while a body blocks the event loop.
            blocks = at if line["e"] == "blocks" else None
        if line["e"] in ("got", "fail", "cut"):
            asks.pop(line["a"], None)
        if line.get("d") and line["e"] == "got":
            longest[line["i"]] = line["d"] - at
        elif line.get("d") and line["i"] in longest:
            longest[line["i"]] = max(longest[line["i"]], line["d"] - at)
        match line["e"]:
            case "ask":
                asks[at] = line
            case "got":
                hold = open_holds[line["i"]] = _hold(process, line)
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
                hold.over, hold.reads = line.get("z"), line.get("r", [])
                if "o" in line:
                    hold.gone, hold.why = at, line["o"]
            case "lost":
                hold = open_holds[line["i"]]
                hold.lost, hold.why, hold.deadline = at, line["why"], line["d"] or FOREVER
            case "down":
                open_holds[line["i"]].downgraded = at
            case "downgraded":
                hold = open_holds[line["i"]]
                hold.read_fence, hold.deadline = line["f"], line["d"] or FOREVER
                hold.read = True
            case "gone":
                open_holds[line["i"]].gone = at
            case "fail":
                record.fails.append(_without(process, line))
            case "cut":
                record.cut.append(_without(process, line))
            case "stall" | "blocked" as word:
                if line.get("c", 0) > _BUSY * (at - line["s"]):
                    stood = f"{(at - line['s']) / 1e6:.0f} ms"
                    words = f"its event loop stood still for {stood} by its own computing"
                    record.errors.append(line | {"p": process, "why": words})
                    continue
                if word == "blocked":
                    blocked[process].append((line["s"], at + _GRACE))
                    continue
                still[process].append((line["s"], at + _GRACE))
                if process != "relay":
                    record.late.append((process, line["s"], at))
            case "error":
                record.errors.append(line | {"p": process})
            case "start":
                record.writers[line.get("of", 0)] = process
                if line.get("kind") == "ours":
                    record.ours.add(process)
    killed = record.killed.get(process)
    if killed is not None:
        if blocks is not None:
            record.silent[process] = blocks
        record.amid += [
            _without(process, line) | {"a": at, "t": killed} for at, line in asks.items()
        ]
    else:
        record.errors += [
            {"t": at, "p": process, "why": f"no answer to {line['n']}"} for at, line in asks.items()
        ]
    for hold in open_holds.values():
        hold.promised = longest.get(hold.number, 0)
        if hold.ended is None:
            hold.killed = killed
            if killed is None:
                record.errors.append(
                    {"t": hold.got, "p": process, "why": f"hold {hold.number} never ended"}
                )
