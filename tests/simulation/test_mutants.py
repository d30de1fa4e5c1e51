"""Every deliberate defect is noticed, within seeds that are known to be enough: docs/simulation.md has the table."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.plan import plan_of
from tests.simulation.shrink import play

pytestmark = pytest.mark.once

# Name: the first seed that catches it, and by which invariant.
CAUGHT: Final = {
    "quorum": (0, "fences"),
    "elapsed": (27, "fences"),
    "drift": (0, "exclusion"),
    "cleanup": (0, "leftovers"),
    "release": (2, "exclusion"),
    "repair": (19, "leftovers"),
    "deadline": (90, "exclusion"),
    "wakeup": (0, "fences"),
    "fence": (0, "fences"),
    "extender": (11, "told"),
    "late-grant": (0, "leftovers"),
    "unshielded": (179, "leftovers"),
    "cancelled": (5, "waiters"),
    "wakeups": (9, "minority"),
    "handoff": (0, "callbacks"),
    "guard": (19, "exclusion"),
    "owed": (1, "leftovers"),
    "timer": (2, "told"),
    "monotonic": (10, "exclusion"),
}


@pytest.mark.parametrize("name", sorted(CAUGHT))
def test_the_defect_is_caught(name: str) -> None:
    seed, invariant = CAUGHT[name]
    plan = plan_of(seed)
    assert play(plan, None).violation is None
    violation = play(plan, name).violation
    assert violation is not None, f"python -m tests.simulation --seed {seed} --mutant {name}"
    assert violation.invariant == invariant


def test_every_defect_has_its_test() -> None:
    assert set(CAUGHT) == set(MUTANTS)
