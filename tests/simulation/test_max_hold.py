"""Test that the invariants cover leases with `max_hold`.

A lease with `max_hold` obeys all rules of a lease, and ends at its `max_hold`. The simulation must
notice three deliberate defects of these leases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from aioredlock_ng._core.validity import deadline_of
from aioredlock_ng._engine.attempt import acquisition
from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
from aioredlock_ng._engine.keeping.renewals import Renewals
from tests.simulation.plan import plan_of
from tests.simulation.shrink import play

if TYPE_CHECKING:
    from tests.simulation.invariants import Violation

pytestmark = pytest.mark.once

ENOUGH = 60
"""Number of seeds, of which at least one must notice the defect."""


def first_violation(target: object, name: str, by: Any) -> Violation:
    with patch.object(target, name, by):
        found = (play(plan_of(seed), None).violation for seed in range(ENOUGH))
        return next(violation for violation in found if violation is not None)


def _unlimited(spec: Any, token: bytes, started: float, *rest: Any) -> LeaseRecord:
    record = LeaseRecord(spec, token, started, *rest)
    record.ends_at = None
    record.deadline = deadline_of(started, spec.life.ttl, spec.life.drift)
    return record


def _half(spec: Any, token: bytes, started: float, *rest: Any) -> LeaseRecord:
    record = LeaseRecord(spec, token, started, *rest)
    if spec.max_hold is not None:
        record.ends_at = started + spec.max_hold / 2
        record.deadline = min(record.deadline, record.ends_at)
    return record


_schedule_next = Renewals._schedule_next


def _take_away(self: Renewals, record: LeaseRecord) -> None:
    _schedule_next(self, record)
    if record.spec.max_hold is not None:
        self._lose(record)


def test_a_lease_that_goes_on_beyond_its_max_hold_is_noticed() -> None:
    violation = first_violation(acquisition, "LeaseRecord", _unlimited)
    assert violation.invariant == "notified"
    assert "after its deadline" in violation.detail


def test_a_lease_that_ends_before_its_max_hold_is_noticed() -> None:
    violation = first_violation(acquisition, "LeaseRecord", _half)
    assert violation.invariant == "minority"
    assert "lost by its max_hold, which had" in violation.detail


def test_a_lease_with_a_max_hold_that_is_lost_for_another_reason_is_noticed() -> None:
    violation = first_violation(Renewals, "_schedule_next", _take_away)
    assert violation.invariant == "minority"
    assert "was lost while a quorum was well" in violation.detail
