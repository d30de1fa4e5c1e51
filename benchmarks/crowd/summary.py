"""Compute medians, tables and bars of `crowd` from its raw rows."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final

from benchmarks.outcome import Grid, Outcome, at_least, at_most, median, paired_ratio

from .cases import BARS, OTHERS, SHAPES

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["summarise"]

_FIGURES: Final = (
    "rate",
    "attempts",
    "commands",
    "commands_by_servers",
    "pushes",
    "share_least",
    "share_most",
    "handoff",
)
_LONGEST: Final = ("wait", "wait_rounds")
"""The figures of which the largest of all rounds counts. A median would hide a long wait."""

_COLUMNS: Final = (
    "case",
    "crowd",
    "code",
    "per s",
    "/ alone",
    "attempts",
    "commands",
    "pushes",
    "least",
    "most",
    "wait s",
    "rounds",
    "hand-over ms",
    "inside",
)
_OTHERS: Final[dict[str, tuple[tuple[str, str, float, int], ...]]] = {
    "killed": (
        ("quiet_gap", "longest time without a holder, nothing happens, ms", 1e3, 1),
        ("killed_gap", "the same, three of twelve waiting processes killed, ms", 1e3, 1),
        ("stopped_gap", "the same, one stopped, ms", 1e3, 1),
        ("stopped_gaps", "gaps above 50 ms then", 1.0, 0),
        ("resumed_gap", "longest time without a holder, it runs on, ms", 1e3, 1),
    ),
    "handover": (
        ("rate", "two processes, hold 0: acquisitions per second", 1.0, 0),
        ("switches", "hand-overs to the other process per second", 1.0, 0),
        ("p50", "from a release to the other process, p50, ms", 1e3, 3),
        ("p99", "the same, p99, ms", 1e3, 3),
        ("two_trips", "two round trips of the floor, p50, ms", 1e3, 3),
        ("ratio", "hand-over / two round trips", 1.0, 2),
        ("bare", "hand-over of two bare processes, p50, ms", 1e3, 3),
        ("bare_ratio", "hand-over of two bare processes / two round trips", 1.0, 2),
    ),
    "woken": (
        ("trip_ms", "a round trip of the floor after 30 ms of sleep, p50, ms", 1.0, 3),
        ("redis_py_ms", "woken by redis-py's release, p50, ms", 1.0, 3),
        ("deleted_ms", "woken by DEL from outside, p50, ms", 1.0, 3),
        ("expiry_ms", "woken by the expiry of a killed holder's key, p50, ms", 1.0, 1),
    ),
    "herd": (
        (
            "commands_per_second",
            "1,000 waiters, held elsewhere: calls of scripts per second in all",
            1.0,
            1,
        ),
        ("traced_kib", "memory per waiter, traced, KiB", 1.0, 2),
        ("resident_kib", "memory per waiter, resident, KiB", 1.0, 2),
        ("connections", "connections per node", 1.0, 0),
        ("served", "served in the end", 1.0, 0),
    ),
}

_NOTES: Final = (
    "crowd: processes x waiters of each, and how long each holds the lock",
    (
        "/ alone: rate against one process with one waiter and the same hold; "
        "at 5 ms an asyncio.Lock or Semaphore"
    ),
    "attempts: per acquisition; commands, pushes: per acquisition and node, as processes read them",
    "commands: those that only the wire can bring, by the servers' count, where these are more",
    "least, most: what the slowest and the fastest process got, where a fair share is 1",
    (
        "wait: the longest, unfinished ones included; rounds: "
        "turns of everybody meanwhile, at this rate"
    ),
    "inside: most holders of a semaphore with a limit of 8 at the same time",
    "killed: a victim did not hold the lock, and the nodes had not granted it the lock just then",
)


def summarise(
    rows: Sequence[dict[str, Any]], names: Sequence[str], codes: Sequence[str]
) -> Outcome:
    """Return the outcome of a run.

    Args:
        rows: Every case of every round, with `round`, `case`, `code` and its figures, or `failed`.
        names: The cases, in order.
        codes: The trees of the library; "ours" alone has bars.
    """
    outcome = Outcome(
        "Crowds of processes on one lock, five nodes; per acquisition and node",
        _COLUMNS,
        raw=list(rows),
    )
    others = Grid(
        "Gaps, hand-overs, wake-ups and a herd, five nodes", ("case", "code", "figure", "measured")
    )
    outcome.further.append(others)
    for name in names:
        for code in codes:
            mine = [row for row in rows if (row["case"], row["code"]) == (name, code)]
            there = [row for row in mine if "failed" not in row]
            outcome.notes.extend(
                f"{name}, {code}: {row['failed']}" for row in mine if "failed" in row
            )
            summary = _crowd(rows, name, code, there) if name in SHAPES else _other(name, there)
            outcome.medians.append({"case": name, "code": code} | summary)
            if name in OTHERS:
                others.rows.extend(
                    (name, code, text, _shown(summary[figure], factor, digits))
                    for figure, text, factor, digits in _OTHERS[name]
                )
            else:
                outcome.rows.append(_row(name, code, summary))
            if code == "ours":
                _set_bars(outcome, name, summary)
    outcome.notes.extend(_NOTES)
    return outcome


def _crowd(
    rows: Sequence[dict[str, Any]], name: str, code: str, mine: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    def rates(of: str) -> dict[int, float]:
        chosen = [
            row for row in rows if (row["case"], row["code"]) == (of, code) and "failed" not in row
        ]
        return {row["round"]: row["rate"] for row in chosen}

    base = SHAPES[name].base
    summary: dict[str, Any] = {figure: median(row[figure] for row in mine) for figure in _FIGURES}
    summary |= {figure: max((row[figure] for row in mine), default=None) for figure in _LONGEST}
    summary["ratio"] = paired_ratio(rates(name), rates(base)) if base else None
    summary["handoff_ms"] = None if summary["handoff"] is None else summary["handoff"] * 1e3
    # Rows about locks lack this figure.
    inside = [row["most_inside"] for row in mine if row.get("most_inside") is not None]
    summary["most_inside"] = max(inside, default=None)
    # A median would hide failures.
    summary["errors"] = sum(row["errors"] for row in mine)
    return summary


def _other(name: str, mine: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if name == "woken":
        mine = [_woken(row) for row in mine]
    figures = {figure for figure, *_ in _OTHERS[name]} | {bar.figure for bar in BARS[name]}
    if name == "killed":
        # A median would hide a round with a long gap.
        summary = {figure: max((row[figure] for row in mine), default=None) for figure in figures}
    else:
        summary = {figure: median(row[figure] for row in mine) for figure in sorted(figures)}
    if mine and "errors" in figures:
        summary["errors"] = sum(row["errors"] for row in mine)
    return summary


def _woken(row: dict[str, Any]) -> dict[str, Any]:
    """Return the p50 of each way to end a lock, also divided by its limit."""

    def p50(delays: Sequence[float]) -> float | None:
        return statistics.median(delays) * 1e3 if delays else None

    trip = row["trip"] * 1e3
    found: dict[str, Any] = {"trip_ms": trip, "expiry_ms": p50(row["expiry"])}
    for figure, way in (("redis_py", "redis-py"), ("deleted", "redis-cli")):
        delay = p50(row[way])
        found |= {
            f"{figure}_ms": delay,
            f"{figure}_over": None if delay is None else delay / (1.5 * trip + 0.3),
        }
    return found


def _row(name: str, code: str, summary: dict[str, Any]) -> tuple[str, ...]:
    return (
        name,
        SHAPES[name].text,
        code,
        _shown(summary["rate"], 1, 0),
        _shown(summary["ratio"], 1, 2),
        _shown(summary["attempts"], 1, 2),
        _shown(summary["commands"], 1, 2),
        _shown(summary["pushes"], 1, 2),
        _shown(summary["share_least"], 1, 2),
        _shown(summary["share_most"], 1, 2),
        _shown(summary["wait"], 1, 2),
        _shown(summary["wait_rounds"], 1, 1),
        _shown(summary["handoff_ms"], 1, 3),
        _shown(summary["most_inside"], 1, 0),
    )


def _shown(value: float | None, factor: float, digits: int) -> str:
    return "-" if value is None else f"{value * factor:,.{digits}f}"


def _set_bars(outcome: Outcome, name: str, summary: dict[str, Any]) -> None:
    for limit in BARS.get(name, ()):
        # The case needs redis-cli for its deletions.
        if limit.figure == "deleted_over" and summary[limit.figure] is None:
            continue
        bar = at_least if limit.least else at_most
        outcome.bars.append(bar(f"crowd {name}: {limit.text}", summary[limit.figure], limit.limit))
    if name in SHAPES:
        outcome.bars.append(
            at_most(f"crowd {name}: acquires and releases that failed", summary["errors"], 0)
        )
