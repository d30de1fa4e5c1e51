"""Mutual exclusion: what the model can do at all, and which of the rules it can do without."""

from __future__ import annotations

import pytest

from tests.model.explore import explore, replay
from tests.model.mutex import Mutex, Rules

pytestmark = pytest.mark.once

A_HOLDS = ["A asks all", "x grants A", "y grants A", "A has the lock for 3"]


def test_the_ttl_of_a_lease_counts_from_the_start_of_its_attempt() -> None:
    model = Mutex(Rules())
    late = ["A asks all", "a tick passes", "x grants A", "y grants A", "A has the lock for 2"]
    assert model.show(replay(model, late)) == "x: A 3   y: A 3   z: -   A holds 2"
    assert "holds" not in model.show(replay(model, [*late, "a tick passes", "a tick passes"]))
    assert not any(replay(model, [*A_HOLDS, *["a tick passes"] * 3]))


def test_an_extension_keeps_the_lease_and_needs_a_quorum() -> None:
    model = Mutex(Rules())
    asked = [*A_HOLDS, "a tick passes", "A asks all to extend", "a tick passes", "x extends A"]
    after = replay(model, [*asked, "y extends A", "A has extended, for 2"])
    assert model.show(after) == "x: A 3   y: A 3   z: -   A holds 2"
    with pytest.raises(LookupError):
        replay(model, [*asked, "A has extended, for 2"])


def test_a_repaired_key_counts_from_the_next_round_on() -> None:
    model = Mutex(Rules(late_requests=False))
    repaired = [*A_HOLDS, "A asks all to extend", "x extends A", "z takes back the key of A"]
    with pytest.raises(LookupError):
        replay(model, [*repaired, "A has extended, for 3"])
    replay(
        model,
        [*repaired, "A asks all to extend", "x extends A", "z extends A", "A has extended, for 3"],
    )


def test_a_node_in_quarantine_grants_nothing_and_takes_nothing_back() -> None:
    model = Mutex(Rules())
    forgot = [*A_HOLDS, "x forgets", "B asks all", "A asks all to extend"]
    assert "x: - quarantined 3" in model.show(replay(model, forgot))
    for step in ("x grants B", "x takes back the key of A", "y grants B"):
        with pytest.raises(LookupError):
            replay(model, [*forgot, step])


def test_a_repaired_key_may_as_well_count_at_once() -> None:
    """Behind the guard a repair is as good as a grant; that it does not count is caution."""
    report = explore(Mutex(Rules(repair_counts=True)))
    assert report.complete
    assert not report.violation
