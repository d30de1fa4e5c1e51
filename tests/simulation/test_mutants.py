"""Every deliberate defect is noticed, within seeds that are known to be enough: docs/simulation.md has the table."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.plan import plan_of
from tests.simulation.shrink import play

pytestmark = pytest.mark.once

# Name: a seed that has caught it. A library whose timing is different has another, not far away.
BEGIN: Final = {
    "quorum": 0,
    "elapsed": 27,
    "drift": 0,
    "cleanup": 0,
    "release": 2,
    "repair": 19,
    "deadline": 90,
    "wakeup": 0,
    "fence": 0,
    "extender": 11,
    "late-grant": 0,
    "unshielded": 179,
    "cancelled": 5,
    "wakeups": 175,
    "handoff": 0,
    "guard": 19,
    "owed": 1,
    "timer": 2,
    "monotonic": 10,
}

ENOUGH: Final = 300
"""Seeds from there on, of which one must."""


@pytest.mark.parametrize("name", sorted(BEGIN))
def test_the_defect_is_caught(name: str) -> None:
    for seed in range(BEGIN[name], BEGIN[name] + ENOUGH):
        if play(plan_of(seed), name).violation is not None:
            break
    else:
        pytest.fail(f"python -m tests.simulation --first-seed {BEGIN[name]} --seeds {ENOUGH} --mutant {name}")
    assert play(plan_of(seed), None).violation is None


def test_every_defect_has_its_test() -> None:
    assert set(BEGIN) == set(MUTANTS)
