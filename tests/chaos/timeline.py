"""A window of a run as what is to be drawn: spans and marks on lanes, in seconds since its begin;
it draws nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from .history import NANO
from .rules import judge

if TYPE_CHECKING:
    from .record import Hold, Record

__all__ = ["best_window", "timeline"]

_HAND_OFF: Final = NANO // 20
"""Between the end of one hold and the begin of the next: the next one was waiting."""

_STATES: Final = {
    "hang": "hung",
    "kill": "down",
    "stall": "partitioned",
    "refuse": "partitioned",
    "delay": "delayed",
    "fill": "full",
}
_POINTS: Final = {"cut", "client_kill", "script_flush"}
_UNPROMISED: Final = "two holders, the first one's keys were deleted"


def timeline(
    record: Record, begin: float, seconds: float, rows: int, *, guarded: bool
) -> dict[str, Any]:
    """Return a window for drawing.

    Args:
        record: The run.
        begin: Seconds after its begin.
        seconds: How long.
        rows: How many resources at most, those with the most to see.
        guarded: Whether nodes that forgot wait in quarantine, as they do with our library.
    """
    window = (record.begin + int(begin * NANO), record.begin + int((begin + seconds) * NANO))
    holds = _long_holds(record, window)
    names = sorted(sorted(holds, key=lambda name: -_interest(holds[name], record, window))[:rows])
    judgement = judge(record)
    kinds: dict[str, int] = defaultdict(int)
    for finding in judgement.violations + judgement.beyond:
        kinds[finding.kind] += 1
    return {
        "begin": begin,
        "seconds": seconds,
        "nodes": [_node(record, node, guarded=guarded) for node in range(record.nodes)],
        "resources": [_resource(record, name, holds[name], window) for name in names],
        "processes": sorted({hold.process for name in names for hold in holds[name]}, key=_slot),
        "run": (record.over - record.begin) / NANO,
        "acquired": len(record.holds),
        "overlaps": kinds["overlap"],
        "deleted_overlaps": kinds[_UNPROMISED],
        "lost_updates": kinds["lost update, plain"] + kinds["lost update, fenced"],
        "refused": judgement.refused,
    }


def best_window(record: Record, seconds: float) -> float:
    """Return where a window has the most to see: two holders at once, faults of many kinds, losses,
    refused writes.
    """
    span = int(seconds * NANO)
    refused = sorted(
        w[4] for hold in record.holds for w in hold.fenced if w[3].startswith("refused")
    )
    lost = sorted(hold.lost for hold in record.holds if hold.lost)
    overlaps = sorted(
        finding.at for finding in judge(record).violations if finding.kind == "overlap"
    )
    kinds = [
        sorted(f["t"] for f in record.faults if f["k"] == kind)
        for kind in {f["k"] for f in record.faults}
    ]

    def score(start: int) -> float:
        def inside(instants: list[int]) -> int:
            return bisect_left(instants, start + span) - bisect_left(instants, start)

        different = sum(inside(instants) > 0 for instants in kinds)
        return (
            2.0 * different
            + 6.0 * min(inside(refused), 2)
            + 0.5 * min(inside(lost), 8)
            + 8.0 * inside(overlaps)
        )

    starts = range(record.begin, max(record.begin + 1, record.over - span), NANO)
    return (max(starts, key=score) - record.begin) / NANO


def _long_holds(record: Record, window: tuple[int, int]) -> dict[str, list[Hold]]:
    """Holds that are wide enough to be seen."""
    named: dict[str, list[Hold]] = defaultdict(list)
    for hold in sorted(record.holds, key=lambda hold: hold.got):
        if (
            hold.names[0].startswith(("long:", "careless:"))
            and hold.got < window[1]
            and _end(hold, record) > window[0]
        ):
            named[hold.names[0]].append(hold)
    return named


def _interest(holds: list[Hold], record: Record, window: tuple[int, int]) -> float:
    score = 0.0
    for index, hold in enumerate(holds):
        score += 2.0 * (hold.lost is not None and window[0] <= hold.lost < window[1])
        score += 5.0 * sum(write[3].startswith("refused") for write in hold.fenced)
        for other in holds[max(0, index - 3) : index]:
            length = min(_end(other, record), _end(hold, record)) - hold.got
            score += 20.0 * (length > NANO // 50)
    return score + 0.01 * len(holds)


def _end(hold: Hold, record: Record) -> int:
    return min(hold.until, record.over)


def _resource(
    record: Record, name: str, holds: list[Hold], window: tuple[int, int]
) -> dict[str, Any]:
    def at(instant: int) -> float:
        return (instant - record.begin) / NANO

    all_fences = sorted(
        hold.fence for hold in record.holds if name in hold.names and hold.fence is not None
    )
    rank = {fence: index + 1 for index, fence in enumerate(all_fences)}
    bars = [
        {
            "from": at(hold.got),
            "to": at(_end(hold, record)),
            "by": hold.process,
            "fence": rank.get(hold.fence or 0),
            "lost": None if hold.lost is None else at(hold.lost),
        }
        for hold in holds
    ]
    taken = {delete["k"]: delete["t"] for delete in record.deletes if delete["name"] == name}
    both = [
        [
            at(hold.got),
            at(min(_end(other, record), _end(hold, record))),
            taken.get(other.token, hold.got + 1) <= hold.got,
        ]
        for index, hold in enumerate(holds)
        for other in holds[:index]
        if _end(other, record) > hold.got and not (hold.kind == "read" and other.shares(hold.got))
    ]
    hand_offs = [
        at(after.got)
        for before, after in pairwise(holds)
        if before.process != after.process and 0 <= after.got - _end(before, record) < _HAND_OFF
    ]
    return {
        "name": name,
        "bars": bars,
        "both": both,
        "hand_offs": hand_offs,
        "refused": [
            at(write[4])
            for hold in holds
            for write in hold.fenced
            if write[3].startswith("refused")
        ],
        "deleted": [at(delete["t"]) for delete in record.deletes if delete["name"] == name],
        "stopped": [
            [at(max(begin, hold.got)), at(min(end, _end(hold, record))), hold.process]
            for hold in holds
            for begin, end in record.stops_of(hold.process)
            if begin < _end(hold, record) and end > hold.got
        ],
    }


def _node(record: Record, node: int, *, guarded: bool) -> dict[str, Any]:
    spans: list[list[Any]] = []
    points: list[float] = []
    guard = record.ttl + 1.0
    for fault in record.faults:
        if node not in fault["n"]:
            continue
        begin = (fault["t"] - record.begin) / NANO
        end = (fault.get("heal", record.over) - record.begin) / NANO
        if fault["k"] in _POINTS:
            points.append(begin)
        elif fault["k"] in _STATES:
            spans.append([begin, end, _STATES[fault["k"]]])
        if guarded and fault["k"] in {"kill", "flush"}:
            spans.append([end, end + guard, "quarantined"])
        elif fault["k"] == "flush":
            points.append(begin)
    return {"spans": spans, "points": points}


def _slot(process: str) -> tuple[str, int]:
    name, _, number = process.partition(".")
    return name, int(number or 0)
