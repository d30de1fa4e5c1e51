"""Measure the cost of fences and the recovery guard, and the number of second rounds.

The same client runs with and without them.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import OURS
from benchmarks.outcome import Outcome, Settings, at_most, median, paired_ratio
from benchmarks.process import run_client

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run"]

_COROUTINES: Final = 100
_EVERY: Final = 0.025
_APART: Final = 0.05
_MOST_CPU: Final = 1.15
_MOST_P50: Final = 1.5
_MOST_SECOND: Final = 0.001

_WAYS: Final[dict[str, dict[str, Any]]] = {
    "with both": {},
    "fences alone": {"recovery_guard": None},
    "without": {"fencing": False, "recovery_guard": None},
}


def run(settings: Settings) -> Outcome:
    """Measure the three configurations in turns."""
    outcome = Outcome(
        "Fences and the recovery guard, five nodes, uncontended cycles",
        ("ours", "coroutines", "cycles/s", "p50 ms", "client CPU µs/cycle"),
    )
    loads = ((1, None), (_COROUTINES, _EVERY), (_COROUTINES, None))
    second: list[dict[str, Any]] = []
    with LocalNodes(5) as nodes:
        for number in range(settings.rounds):
            for coroutines, every in loads:
                for way, options in _WAYS.items():
                    settings.say(
                        f"fences: round {number + 1}/{settings.rounds}, {coroutines} coroutines, "
                        f"{way}"
                    )
                    seconds = settings.seconds(2.0, 0.6)
                    figures = run_client(
                        OURS, nodes.urls, coroutines, seconds, options=options, every=every
                    )
                    outcome.raw.append(
                        {"round": number, "way": way, "coroutines": coroutines, "every": every}
                        | figures
                    )
            settings.say(
                f"fences: round {number + 1}/{settings.rounds}, clocks {_APART * 1e3:.0f} ms apart"
            )
            second.append(_second_rounds(nodes.urls, settings))
    outcome.raw.extend(second)
    for coroutines, every in loads:
        for way in _WAYS:
            mine = _by_round(outcome.raw, way, coroutines, every)
            row: dict[str, Any] = {
                "way": way,
                "coroutines": coroutines,
                "every": every,
                "per_second": median(row["per_second"] for row in mine.values()),
                "p50": median(row["cycle"]["p50"] for row in mine.values()),
                "cpu_per_cycle": median(_cpu(row) for row in mine.values()),
            }
            outcome.medians.append(row)
            outcome.rows.append(
                (
                    way,
                    f"{coroutines}, every {every * 1e3:g} ms" if every else str(coroutines),
                    f"{row['per_second']:,.0f}",
                    f"{row['p50'] * 1e3:.3f}",
                    f"{row['cpu_per_cycle'] * 1e6:.1f}",
                )
            )
    for coroutines, every in loads[:2]:
        ratio = _cpu_ratio(outcome.raw, coroutines, every)
        what = f"{_COROUTINES} coroutines at the same load" if every else "1 coroutine"
        outcome.bars.append(
            at_most(f"client CPU per cycle, {what}, with both / without", ratio, _MOST_CPU)
        )
    alone = [
        {number: row["cycle"]["p50"] for number, row in _by_round(outcome.raw, way, 1).items()}
        for way in _WAYS
    ]
    # A second round trip would double the p50.
    outcome.bars.append(
        at_most(
            "cycle p50 at 1 coroutine, with both / without",
            paired_ratio(alone[0], alone[-1]),
            _MOST_P50,
        )
    )
    share = median(row["second_rounds"] / row["acquired"] for row in second)
    outcome.bars.append(
        at_most(
            "second rounds per acquisition, clocks 50 ms apart, after learning", share, _MOST_SECOND
        )
    )
    outcome.bars.append(
        at_most("fences that were not greater", sum(row["wrong"] for row in second), 0)
    )
    acquired, rounds, learning = (
        sum(row[figure] for row in second) for figure in ("acquired", "second_rounds", "learning")
    )
    if (flat_out := _cpu_ratio(outcome.raw, _COROUTINES, None)) is not None:
        outcome.notes.append(
            f"flat out, {_COROUTINES} coroutines: client CPU per cycle {flat_out:.2f} of that "
            "without; each goes as fast as the"
            " servers let it there, and these, busier, share the machine's cores with the client"
        )
    outcome.notes.append(
        f"clocks apart: {acquired:,} acquisitions by two managers on shared names,"
        f" {rounds} second rounds, and {learning} while learning"
    )
    return outcome


def _second_rounds(urls: Sequence[str], settings: Settings) -> dict[str, Any]:
    driver = replace(OURS, driver="fences_ours.py")
    task = {
        "urls": urls,
        "apart": _APART,
        "learn": settings.seconds(2.0, 1.0),
        "seconds": settings.seconds(5.0, 1.0),
    }
    command = [*driver.command(), json.dumps(task)]
    done = subprocess.run(
        command, env=driver.variables(), capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _by_round(
    raw: Sequence[dict[str, Any]], way: str, coroutines: int, every: float | None = None
) -> dict[int, dict[str, Any]]:
    wanted = way, coroutines, every
    return {
        row["round"]: row
        for row in raw
        if "way" in row and (row["way"], row["coroutines"], row["every"]) == wanted
    }


def _cpu(row: dict[str, Any]) -> float:
    return float(row["cpu_seconds"] / row["cycles"])


def _cpu_ratio(raw: Sequence[dict[str, Any]], coroutines: int, every: float | None) -> float | None:
    with_both, without = (
        {number: _cpu(row) for number, row in _by_round(raw, way, coroutines, every).items()}
        for way in ("with both", "without")
    )
    return paired_ratio(with_both, without)
