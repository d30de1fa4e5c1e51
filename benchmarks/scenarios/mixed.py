"""Measure ours and redis-py's `Lock`, which polls, on the same key.

The figures are the acquisitions and the waits of both sides.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from typing import Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import OURS, named
from benchmarks.outcome import Outcome, Settings, at_most, median
from benchmarks.process import Driver, DriverFailed

__all__ = ["run"]

_SECONDS: Final = 5.0
_HOLD: Final = 0.002


@dataclass(frozen=True, slots=True)
class _Case:
    """Describe the two sides of one case.

    Attributes:
        sleep: Seconds between two questions of redis-py.
        processes: Processes of ours. There is one of redis-py.
        waiters: Waiters in each process of ours. There is one in that of redis-py.
        pause: Seconds between a release and the next acquire of the same waiter.
    """

    sleep: float
    processes: int = 1
    waiters: int = 1
    pause: float = 0.0


_CASES: Final = (
    _Case(0.005),
    _Case(0.005, processes=4),
    _Case(0.005, waiters=10),
    _Case(0.1),
    _Case(0.005, pause=0.005),
)


def run(settings: Settings) -> Outcome:
    """Measure every case in turn, round by round."""
    outcome = Outcome(
        "Ours and one redis-py Lock on one key and one node, hold 2 ms, medians",
        (
            "redis-py's sleep ms",
            "our processes x waiters",
            "pause ms",
            "ours/s",
            "redis-py's/s",
            "our share",
            "our wait p50 ms",
            "our longest wait ms",
            "its longest wait ms",
        ),
    )
    for number in range(settings.rounds):
        for case in _CASES:
            settings.say(f"mixed: round {number + 1}/{settings.rounds}, {case}")
            outcome.raw.append(
                {"round": number} | asdict(case) | _measured(case, settings.seconds(_SECONDS, 1.5))
            )
    for case in _CASES:
        wanted = asdict(case)
        _summarise(outcome, case, [row for row in outcome.raw if wanted.items() <= row.items()])
    outcome.notes.append(
        "redis-py has one process with one waiter; each waiter asks again after its release and "
        "the pause"
    )
    return outcome


def _measured(case: _Case, seconds: float) -> dict[str, Any]:
    (redis_py,) = named(["redis-py"])
    # The window must not wait for the first acquisition of a process, because one side may starve.
    window = {"open": 0.0, "warmup": 1.0, "seconds": seconds}
    phase = {"name": "line", "same": "mixed", "hold": _HOLD, "pause": case.pause} | window
    with contextlib.ExitStack() as stack:
        nodes = stack.enter_context(LocalNodes(1))
        task = {"urls": nodes.urls, "ttl": 10.0, "sleep": case.sleep, "phases": [phase]}
        try:
            drivers = [
                stack.enter_context(
                    Driver(client.command(), client.variables(), task | {"coroutines": waiters})
                )
                for client, waiters in ((redis_py, 1), *((OURS, case.waiters),) * case.processes)
            ]
            for driver in drivers:
                driver.ready()
            for driver in drivers:
                driver.begin()
            theirs, *ours = (driver.line(seconds + 30.0) for driver in drivers)
        except DriverFailed as failure:
            return {"failed": str(failure)}
    ours_taken = sum(figures["acquired"] for figures in ours)
    waits = [figures["wait"]["p50"] for figures in ours if figures["wait"]]
    return {
        "ours_per_second": sum(figures["acquired"] / figures["seconds"] for figures in ours),
        "theirs_per_second": theirs["acquired"] / theirs["seconds"],
        "share": ours_taken / (ours_taken + theirs["acquired"] or 1),
        "wait": median(waits),
        "longest_wait": max(map(_longest, ours)),
        "their_longest_wait": _longest(theirs),
        "errors": sum(figures["errors"] for figures in ours),
        "ours": ours,
        "theirs": theirs,
    }


def _longest(figures: dict[str, Any]) -> float:
    """Return the longest wait, with the unfinished wait of a waiter that was not served."""
    served = figures["wait"]["max"] if figures["wait"] else 0.0
    return max(float(served), float(figures["waiting"]))


def _summarise(outcome: Outcome, case: _Case, rows: list[dict[str, Any]]) -> None:
    measured = [row for row in rows if "failed" not in row]
    names = (
        "ours_per_second",
        "theirs_per_second",
        "share",
        "wait",
        "longest_wait",
        "their_longest_wait",
    )
    summary = {name: median(row[name] for row in measured) for name in names}
    outcome.medians.append(asdict(case) | summary)
    shares = [row["share"] for row in measured]
    ours, theirs, share, *waits = (summary[name] for name in names)
    outcome.rows.append(
        (
            f"{case.sleep * 1e3:g}",
            f"{case.processes} x {case.waiters}",
            f"{case.pause * 1e3:g}",
            *("-" if rate is None else f"{rate:,.0f}" for rate in (ours, theirs)),
            "-" if share is None else f"{share:.0%} ({min(shares):.0%} to {max(shares):.0%})",
            *("-" if wait is None else f"{wait * 1e3:,.1f}" for wait in waits),
        )
    )
    outcome.notes += [row["failed"] for row in rows if "failed" in row][:1]
    failed = None if len(measured) < len(rows) else float(sum(row["errors"] for row in measured))
    where = f"sleep={case.sleep:g}, {case.processes} x {case.waiters}, pause {case.pause:g} s"
    outcome.bars.append(at_most(f"{where}: acquires and releases of ours that failed", failed, 0))
