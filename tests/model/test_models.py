"""The rules hold in every reachable state. Each known-wrong rule is found by its shortest trace."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import pytest

from tests.model.cases import KNOWN_WRONG, SMALL
from tests.model.explore import explore, tell_trace

if TYPE_CHECKING:
    from tests.model.cases import Case

pytestmark = pytest.mark.once

NAME = operator.attrgetter("name")


@pytest.mark.parametrize("case", SMALL, ids=NAME)
def test_rules_hold_in_every_state(case: Case) -> None:
    report = explore(case.model)
    assert not report.violation, tell_trace(case.model, report)
    assert report.complete


@pytest.mark.parametrize("case", KNOWN_WRONG, ids=NAME)
def test_a_wrong_rule_is_found_by_the_shortest_trace(case: Case) -> None:
    report = explore(case.model)
    assert report.violation
    assert len(report.trace) == case.steps, tell_trace(case.model, report)
