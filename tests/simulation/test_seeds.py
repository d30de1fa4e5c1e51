"""A fixed small set of seeds in every run of the suite, and that a seed is a run exactly."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation.plan import plan_of
from tests.simulation.shrink import play
from tests.simulation.tell import tell_log
from tests.support.coverage import untraced

pytestmark = pytest.mark.once


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_no_invariant_is_violated(first: int) -> None:
    for seed in range(first, first + 20):
        outcome = play(plan_of(seed), None)
        assert outcome.violation is None, (
            f"seed {seed}: .venv/bin/python -m tests.simulation --seed {seed} (CONTRIBUTING.md: When a seed fails)"
        )


@pytest.mark.parametrize("seed", range(100, 103))
def test_a_seed_is_the_same_run_each_time(seed: int) -> None:
    first, second = play(plan_of(seed), None), play(plan_of(seed), None)
    assert len(first.log) > 50
    assert first.log == second.log


def test_a_seed_is_the_same_run_in_every_process() -> None:
    # Whatever order its sets of strings have.
    environ = {**untraced(), "PYTHONHASHSEED": "4711"}
    words = [sys.executable, "-m", "tests.simulation", "--seed", "7"]
    there = subprocess.run(words, capture_output=True, text=True, check=True, env=environ).stdout
    assert "\n".join(tell_log(play(plan_of(7), None).log)) in there
