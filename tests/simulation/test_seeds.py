"""Test a small fixed set of seeds, and that a seed always gives exactly the same run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation.plan import plan_of
from tests.simulation.report import log_lines
from tests.simulation.shrink import play
from tests.support.coverage import untraced

pytestmark = pytest.mark.once


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_no_invariant_is_violated(first: int) -> None:
    for seed in range(first, first + 20):
        outcome = play(plan_of(seed), None)
        assert outcome.violation is None, (
            f"seed {seed}: .venv/bin/python -m tests.simulation --seed {seed}"
            " (CONTRIBUTING.md: When a seed fails)"
        )


def test_some_runs_have_semaphores_and_read_write_locks_of_their_slots() -> None:
    plans = [plan_of(seed) for seed in range(300)]
    slots = [
        {f"{name}#1" for action in plan.actions if action.limit for name in action.resources}
        for plan in plans
    ]
    readers = [
        {name for action in plan.actions if action.side for name in action.resources}
        for plan in plans
    ]
    assert sum(not own.isdisjoint(others) for own, others in zip(slots, readers, strict=True)) >= 3


def test_some_runs_have_terms_and_fair_waiters_beside_locks_of_the_same_names() -> None:
    plans = [plan_of(seed) for seed in range(300)]
    led = [{action.resources for action in plan.actions if action.how == "lead"} for plan in plans]
    locked = [
        {action.resources for action in plan.actions if action.how != "lead"} for plan in plans
    ]
    assert sum(not own.isdisjoint(others) for own, others in zip(led, locked, strict=True)) >= 20
    assert (
        sum(0 < sum(action.fair for action in plan.actions) < len(plan.actions) for plan in plans)
        >= 10
    )


@pytest.mark.parametrize("seed", range(100, 103))
def test_a_seed_is_the_same_run_each_time(seed: int) -> None:
    first, second = play(plan_of(seed), None), play(plan_of(seed), None)
    assert len(first.log) > 50
    assert first.log == second.log


def test_a_seed_is_the_same_run_in_every_process() -> None:
    # With another hash seed, sets of strings have another order.
    environ = {**untraced(), "PYTHONHASHSEED": "4711"}
    words = [sys.executable, "-m", "tests.simulation", "--seed", "7"]
    there = subprocess.run(words, capture_output=True, text=True, check=True, env=environ).stdout
    assert "\n".join(log_lines(play(plan_of(7), None).log)) in there
