"""`make model`: explores every model at its large bound, and looks for a violation under every rule
that is known wrong.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

from tests.model.cases import KNOWN_WRONG, LARGE, SMALL
from tests.model.explore import explore, tell_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.model.cases import Case
    from tests.model.explore import Progress, Report


def main(words: Sequence[str] | None = None) -> int:
    """Explore, print, and return 0 if everything was as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--small", action="store_true", help="the bounds of the test suite")
    parser.add_argument("--only", default="", metavar="TEXT", help="what has this in its name")
    parser.add_argument(
        "--traces", action="store_true", help="print the shortest way to each violation"
    )
    parser.add_argument(
        "--processes", type=int, default=2, metavar="N", help="explorations at a time (2)"
    )
    arguments = parser.parse_args(words)
    cases = [
        case
        for case in (*(SMALL if arguments.small else LARGE), *KNOWN_WRONG)
        if arguments.only in case.name
    ]
    started = time.monotonic()
    # A process for each exploration, so that its memory is given back, and is its own figure.
    with ProcessPoolExecutor(
        arguments.processes, mp_context=get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        running = {pool.submit(_run, case): case for case in cases}
        done = {}
        for future in as_completed(running):
            case = running[future]
            done[case.name] = report, _ = future.result()
            _say(line(case, *done[case.name]))
            if report.trace and (arguments.traces or not case.steps):
                _say(tell_trace(case.model, report))
    _say("", f"{'':82}{'states':>12}{'followed':>13}{'depth':>6}{'seconds':>9}{'MB':>7}")
    for case in cases:
        _say(line(case, *done[case.name]))
    sound = [done[case.name][0] for case in cases if not case.steps]
    wrong = [case for case in cases if not _as_expected(case, done[case.name][0])]
    states = sum(report.explored.states for report in sound)
    _say(
        "",
        f"{states:,} states of sound rules in {time.monotonic() - started:.0f} s;"
        f" unexpected: {len(wrong)}",
    )
    return 1 if wrong else 0


def _run(case: Case) -> tuple[Report, int]:
    report = explore(case.model, tell=partial(_tell, case.name))
    return report, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _tell(name: str, progress: Progress) -> None:
    rate = progress.states / progress.seconds
    _say(
        f"  … {name}: {progress.states:,} states, depth {progress.depth},"
        f" {progress.seconds:.0f} s, {rate:,.0f} a second"
    )


def _as_expected(case: Case, report: Report) -> bool:
    return len(report.trace) == case.steps and (report.complete or bool(case.steps))


def line(case: Case, report: Report, megabytes: int) -> str:
    """One row of the table."""
    explored = report.explored
    found = f"found in {len(report.trace)}" if report.violation else "sound"
    surprise = "" if _as_expected(case, report) else "   UNEXPECTED"
    return (
        f"{case.name:70}{found:>12}{explored.states:12,}{explored.steps:13,}{explored.depth:6}"
        f"{explored.seconds:9.1f}{megabytes:7}{surprise}"
    )


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
