"""Run seeds of the simulation on all processors, one seed with its event log, or all mutants."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tests.simulation.mutants import MUTANTS
from tests.simulation.plan import plan_of
from tests.simulation.report import Totals, log_lines, plan_lines, repeat
from tests.simulation.shrink import play, shrink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.simulation.run import Outcome

__all__ = ["main"]

_AT_ONCE = 10
"""Number of seeds that each worker process gets at a time."""

MUTANT_SEEDS = 3000
"""Number of seeds after which a mutant counts as not caught."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command, print its results, and return the exit status.

    The status is 0 if no invariant was violated, or if every mutant was caught.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=1000, metavar="N", help="number of seeds (1000)"
    )
    parser.add_argument("--first-seed", type=int, default=0, metavar="K", help="first seed (0)")
    parser.add_argument(
        "--seed", type=int, metavar="S", help="run this seed alone, and print its log"
    )
    parser.add_argument(
        "--keep", metavar="NAMES", help="with --seed: keep only these actions and faults"
    )
    parser.add_argument(
        "--mutant", choices=sorted(MUTANTS), help="put this defect into the library"
    )
    parser.add_argument(
        "--mutants", action="store_true", help="print what catches each defect, and when"
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="worker processes (one per processor)",
    )
    arguments = parser.parse_args(words)
    if arguments.seed is not None:
        return _one(arguments.seed, arguments.keep, arguments.mutant)
    with closing(_Pool(arguments.processes)) as pool:
        if arguments.mutants:
            return _all_mutants(pool)
        seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
        return _many(pool, seeds, arguments.mutant)


class _Pool:
    def __init__(self, processes: int) -> None:
        # A forked worker would inherit the state of this process. A single process needs no pool.
        self._pool = multiprocessing.get_context("spawn").Pool(processes) if processes > 1 else None

    def outcomes(self, seeds: Iterable[int], mutant: str | None) -> Iterator[Outcome]:
        """Run the seeds, and yield their outcomes in any order."""
        jobs = ((seed, mutant) for seed in seeds)
        return (
            map(_play, jobs)
            if self._pool is None
            else self._pool.imap_unordered(_play, jobs, chunksize=_AT_ONCE)
        )

    def first(self, mutants: Sequence[str]) -> Iterator[tuple[str, Outcome | None]]:
        """Yield each mutant with the outcome of the first seed that catches it, or None."""
        return map(_catch, mutants) if self._pool is None else self._pool.imap(_catch, mutants)

    def close(self) -> None:
        """Stop the worker processes, even if they are at work."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()


def _play(job: tuple[int, str | None]) -> Outcome:
    seed, mutant = job
    outcome = play(plan_of(seed), mutant)
    # The log is the largest part of an outcome, so workers do not send it. `_shorten` makes the log
    # again.
    outcome.log = []
    return outcome


def _catch(mutant: str) -> tuple[str, Outcome | None]:
    for seed in range(MUTANT_SEEDS):
        outcome = _play((seed, mutant))
        if outcome.violation is not None:
            return mutant, outcome
    return mutant, None


def _many(pool: _Pool, seeds: range, mutant: str | None) -> int:
    totals, started = Totals(), time.monotonic()
    failed: list[Outcome] = []
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[found]} violations"),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("simulating", total=len(seeds), found=0)
        for outcome in pool.outcomes(seeds, mutant):
            totals.add(outcome)
            if outcome.violation is not None:
                failed.append(outcome)
            progress.update(bar, advance=1, found=len(failed))
    _print(*totals.lines(time.monotonic() - started))
    if not failed:
        _print(f"no invariant violated by seeds {seeds.start} to {seeds.stop - 1}")
        return 0
    failed.sort(key=lambda outcome: outcome.seed)
    for outcome in failed:
        _print(f"seed {outcome.seed}: {outcome.violation}")
    _shorten(failed[0].seed, mutant)
    return 1


def _shorten(seed: int, mutant: str | None) -> None:
    whole = plan_of(seed)
    plan, outcome = shrink(whole, mutant)
    _print(
        "",
        f"the shortest run that violates the same invariant as seed {seed}:",
        *plan_lines(plan),
        *log_lines(outcome.log),
    )
    how = "how to read this log: CONTRIBUTING.md, When a seed fails"
    _print(how, f"{outcome.violation}", f"to repeat this run: {repeat(plan, whole, mutant)}")


def _one(seed: int, keep: str | None, mutant: str | None) -> int:
    plan = plan_of(seed)
    if keep is not None:
        plan = plan.keeping(set(keep.split(",")))
    outcome = play(plan, mutant)
    totals = Totals()
    totals.add(outcome)
    _print(*plan_lines(plan), *log_lines(outcome.log))
    if outcome.violation is None:
        _print(
            f"no invariant violated; {outcome.acquired} acquisitions,"
            f" {outcome.faults.total()} faults"
        )
        return 0
    _print(str(outcome.violation))
    if keep is None:
        _shorten(seed, mutant)
    return 1


def _all_mutants(pool: _Pool) -> int:
    escaped = 0
    _print(f"{'mutant':12}{'what is wrong':58}{'caught by':14}{'seeds':>6}")
    for name, outcome in pool.first(list(MUTANTS)):
        violation = None if outcome is None else outcome.violation
        caught, seeds = (
            ("none", MUTANT_SEEDS)
            if outcome is None or violation is None
            else (violation.invariant, outcome.seed + 1)
        )
        escaped += violation is None
        _print(f"{name:12}{MUTANTS[name].what:58}{caught:14}{seeds:6}")
    _print("", f"{len(MUTANTS) - escaped} of {len(MUTANTS)} caught")
    return 1 if escaped else 0


def _print(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
