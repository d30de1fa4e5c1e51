"""Shortens a failing run.

Actions and faults are left out as long as the run still violates the same invariant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.mutants import mutated
from tests.simulation.run import Outcome, run

if TYPE_CHECKING:
    from tests.simulation.plan import Plan

__all__ = ["MOST_RUNS", "play", "shrink"]

MOST_RUNS = 300
"""Largest number of runs that shortening a plan may take."""


def play(plan: Plan, mutant: str | None) -> Outcome:
    """Run a plan with the library as it is, or with a mutant."""
    with mutated(mutant):
        return run(plan)


def shrink(plan: Plan, mutant: str | None = None, most: int = MOST_RUNS) -> tuple[Plan, Outcome]:
    """Leave out halves of the plan, then quarters and so on, down to single actions and faults.

    Returns:
        The short plan and its outcome. A plan that violates nothing is returned unchanged.
    """
    found = play(plan, mutant)
    if found.violation is None:
        return plan, found
    runs, size = 0, len(plan.names) // 2
    while size:
        names, dropped = plan.names, False
        for start in range(0, len(names), size):
            part = set(names[start : start + size])
            fewer = plan.keeping(set(plan.names) - part)
            if runs == most or len(fewer.names) == len(plan.names):
                continue
            runs += 1
            outcome = play(fewer, mutant)
            if (
                outcome.violation is not None
                and outcome.violation.invariant == found.violation.invariant
            ):
                plan, found, dropped = fewer, outcome, True
        size = (
            (0 if runs == most else size // 2)
            if not dropped or runs == most
            else min(size, max(1, len(plan.names) // 2))
        )
    return plan, found
