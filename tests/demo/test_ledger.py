"""The demo's arithmetic: percentiles, lost updates, the verdict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng.cli.demo.ledger import Loss, PhaseLedger, judge, percentile

NOTICED = Loss("its keys were deleted", 1.0, 0.312, "the deletion")
UNNOTICED = Loss("its keys were deleted", 1.0, None, "the deletion")


def ledger(**counted: Any) -> PhaseLedger:
    return PhaseLedger(
        **{
            "title": "healthy",
            "locked": True,
            "acknowledged": 100,
            "gained": 100,
            "seconds": 2.0,
            **counted,
        }
    )


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, None),
        ([7.0], 0.01, 7.0),
        ([7.0], 1, 7.0),
        ([1.0, 2.0], 0.5, 1.0),
        ([1.0, 2.0, 3.0], 0.5, 2.0),
        (list(range(1, 101)), 0.5, 50),
        (list(range(1, 101)), 0.99, 99),
        (list(range(1, 101)), 1, 100),
    ],
)
def test_percentile_is_the_nearest_rank(
    values: list[float], share: float, expected: float | None
) -> None:
    assert percentile(values, share) == expected


@pytest.mark.parametrize("share", [0, -0.1, 1.01])
def test_percentile_refuses_a_share_out_of_range(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        percentile([1.0], share)


@given(st.lists(st.integers(min_value=0), min_size=1), st.floats(min_value=0.001, max_value=1))
def test_percentile_has_its_share_of_values_at_or_below(values: list[int], share: float) -> None:
    found = percentile(sorted(values), share)

    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("acknowledged", "in_doubt", "gained", "lost", "unexplained"),
    [
        (100, 0, 100, 0, 0),
        (100, 0, 97, 3, 0),
        (100, 2, 102, 0, 0),  # those in doubt were written after all
        (100, 2, 100, 0, 0),  # or were not: nobody was promised anything
        (100, 2, 99, 1, 0),
        (100, 2, 103, 0, 1),
        (0, 0, 0, 0, 0),
    ],
)
def test_lost_updates_are_acknowledged_updates_that_are_missing(
    acknowledged: int, in_doubt: int, gained: int, lost: int, unexplained: int
) -> None:
    phase = ledger(acknowledged=acknowledged, in_doubt=in_doubt, gained=gained)

    assert (phase.lost, phase.unexplained) == (lost, unexplained)


def test_a_phase_adds_up_the_reports_of_its_workers() -> None:
    phase = ledger(acknowledged=0, gained=0, seconds=0.0)
    phase.add(gained=3, acknowledged=3, waits_us=[1000, 2000, 3000])
    assert phase.acquire_seconds(0.5, 0.99) == (0.002, 0.003)
    phase.add(gained=5, acknowledged=2, in_doubt=1, refused=4, leases_lost=5, waits_us=[500, 500])

    assert (phase.acknowledged, phase.in_doubt, phase.refused, phase.leases_lost) == (5, 1, 4, 5)
    assert phase.acquire_seconds(0.5, 0.99) == (0.001, 0.003)
    assert phase.lost == 0
    assert phase.per_second == 0.0
    phase.seconds = 2.0
    assert phase.per_second == 2.5


def test_a_run_without_loss_passes() -> None:
    verdict = judge([ledger(), ledger()], [NOTICED])

    assert verdict.ok
    assert verdict.exit_status == 0


def test_updates_lost_without_the_lock_are_no_failure() -> None:
    assert judge([ledger(locked=False, gained=10), ledger()], [NOTICED]).exit_status == 0


@pytest.mark.parametrize(
    ("phases", "losses", "words"),
    [
        (
            [ledger(), ledger(gained=98)],
            [NOTICED],
            "2 updates were lost under the lock in phase 'healthy'",
        ),
        ([ledger(gained=101)], [NOTICED], "the counters hold 1 more"),
        ([ledger(acknowledged=0, gained=0)], [NOTICED], "no update was made"),
        ([ledger()], [NOTICED, UNNOTICED], "was not notified"),
    ],
)
def test_anything_wrong_under_the_lock_fails_the_run(
    phases: list[PhaseLedger], losses: list[Loss], words: str
) -> None:
    verdict = judge(phases, losses)

    assert verdict.exit_status == 1
    assert len(verdict.faults) == 1
    assert words in verdict.faults[0]


def test_a_run_without_any_locked_phase_proves_nothing() -> None:
    assert judge([ledger(locked=False)], []).exit_status == 1
