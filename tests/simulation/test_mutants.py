"""Every deliberate defect is noticed within a known number of seeds.

The table is in docs/simulation.md.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.plan import plan_of
from tests.simulation.shrink import play

pytestmark = pytest.mark.once

# For each mutant: the seed at which the search begins, and the invariants that may notice the
# mutant. A library with another timing needs other seeds, not far from these.
CAUGHT: Final = {
    "quorum": (0, {"backed"}),
    "elapsed": (0, {"backed"}),
    "drift": (0, {"backed"}),
    "renewed-drift": (0, {"backed"}),
    "cleanup": (0, {"leftovers"}),
    "release": (2, {"exclusion", "kept", "minority"}),
    "repair": (13, {"leftovers"}),
    "deadline": (0, {"backed"}),
    "fence": (0, {"fences"}),
    "block": (0, {"fences"}),
    "below": (0, {"fences"}),
    "longer": (0, {"backed"}),
    "one-fewer": (0, {"backed"}),
    "hasty": (20, {"minority"}),
    "passed-on": (0, {"backed"}),
    "extender": (5, {"notified", "minority"}),
    "same-token": (0, {"tokens"}),
    "given-up": (0, {"timeout"}),
    "late-grant": (0, {"leftovers"}),
    "unshielded": (400, {"leftovers"}),
    "untaken": (0, {"waiters"}),
    "cancelled": (5, {"leftovers", "minority", "waiters"}),
    "wakeups": (20, {"waiters", "minority", "order"}),
    "anybody": (100, {"order"}),
    "entry": (0, {"leftovers"}),
    "no-offer": (20, {"order", "waiters"}),
    "take-back": (0, {"exclusion"}),
    "out-of-reach": (10, {"leftovers", "minority"}),
    "refusing": (0, {"leftovers"}),
    "kept": (5700, {"waiters", "minority", "leftovers"}),
    "undying": (10, {"leftovers"}),
    "handoff": (0, {"callbacks"}),
    "guard": (10, {"exclusion"}),
    "half-guard": (0, {"guard"}),
    "founding": (10, {"guard", "exclusion", "kept"}),
    "witness": (10, {"guard", "exclusion"}),
    "owed": (1, {"leftovers"}),
    "shapes": (0, {"callbacks"}),
    "garbled": (0, {"leftovers"}),
    "counting": (0, {"exclusion"}),
    "beyond": (0, {"limit"}),
    "hoarding": (60, {"leftovers"}),
    "unheard": (80, {"order", "waiters"}),
    "forgotten": (100, {"waiters"}),
    "forgone": (0, {"kept"}),
    "short-mark": (0, {"kept"}),
    "shortened": (20, {"kept"}),
    "shared-grant": (0, {"exclusion", "minority"}),
    "beside": (0, {"exclusion", "minority"}),
    "write-back": (0, {"fences"}),
    "downgrade": (0, {"backed", "exclusion", "minority"}),
    "carried": (0, {"leftovers"}),
    "barging": (30, {"order"}),
    "writers-first": (120, {"order"}),
    "no-step-down": (0, {"terms"}),
    "term-goes-on": (0, {"notified", "terms"}),
    "timer": (2, {"notified"}),
    "undo": (40, {"leftovers"}),
    "unnotified": (0, {"notified"}),
    "stall-limit": (30, {"stalled"}),
    "impatient": (0, {"stalled"}),
    "forsaken": (30, {"exclusion"}),
    "undone-hold": (200, {"leftovers"}),
    "monotonic": (10, {"exclusion"}),
}

ENOUGH: Final = 300
"""Number of seeds from there on, of which at least one must notice the mutant."""


@pytest.mark.parametrize("name", sorted(CAUGHT))
def test_each_defect_is_caught_within_its_seeds(name: str) -> None:
    begin, invariants = CAUGHT[name]
    for seed in range(begin, begin + ENOUGH):
        if (violation := play(plan_of(seed), name).violation) is not None:
            break
    else:
        pytest.fail(
            f"python -m tests.simulation --first-seed {begin} --seeds {ENOUGH} --mutant {name}"
        )
    assert violation.invariant in invariants
    assert play(plan_of(seed), None).violation is None


def test_every_defect_has_its_test() -> None:
    assert set(CAUGHT) == set(MUTANTS)
