"""Slots: what the model can do at all, and that limits side by side keep the greatest of them."""

from __future__ import annotations

import pytest

from tests.model.explore import replay
from tests.model.slots import Rules, Slots

pytestmark = pytest.mark.once

A_HAS_ONE = ["A asks all", "x grants A slot 1", "y grants A slot 1", "A has slot 1 for 2"]


def test_each_slot_has_a_quorum_of_its_own() -> None:
    model = Slots(Rules(ttl=2, guard=2))
    both = [
        *A_HAS_ONE,
        "B asks all",
        "x grants B slot 2",
        "z grants B slot 2",
        "B has slot 2 for 2",
    ]
    shown = "x: 1=A 2 2=B 2   y: 1=A 2   z: 2=B 2   A has slot 1 for 2   B has slot 2 for 2"
    assert model.show(replay(model, both)) == shown


def test_grants_of_different_slots_are_no_quorum() -> None:
    model = Slots(Rules(ttl=2, guard=2))
    split = [*A_HAS_ONE, "B asks all", "x grants B slot 2", "z grants B slot 1"]
    for slot in (1, 2):
        with pytest.raises(LookupError):
            replay(model, [*split, f"B has slot {slot} for 2"])


def test_a_client_with_a_lower_limit_takes_no_slot_above_it() -> None:
    model = Slots(Rules(limits=(1, 2), ttl=2, guard=2))
    taken = ["A asks all for a slot up to 2", *A_HAS_ONE[1:], "B asks all for a slot up to 1"]
    replay(model, [*taken, "z grants B slot 1"])
    for step in ("z grants B slot 2", "x grants B slot 2"):
        with pytest.raises(LookupError):
            replay(model, [*taken, step])


def test_a_holder_above_a_lowered_limit_stays_until_it_releases() -> None:
    model = Slots(Rules(limits=(1, 2), ttl=2, guard=2))
    above = [
        "A asks all for a slot up to 2",
        "x grants A slot 2",
        "y grants A slot 2",
        "A has slot 2 for 2",
    ]
    both = [
        *above,
        "B asks all for a slot up to 1",
        "x grants B slot 1",
        "y grants B slot 1",
        "B has slot 1 for 2",
    ]
    after = replay(model, both)
    assert not model.broken(after), "two holders, and the greatest limit in use is 2"
    assert (
        model.show(replay(model, [*both, "A releases"]))
        == "x: 1=B 2   y: 1=B 2   z: -   B has slot 1 for 2"
    )


def test_a_missing_key_is_set_again_for_the_same_slot_and_counts_from_the_next_round_on() -> None:
    model = Slots(Rules(ttl=2, guard=2))
    repaired = [*A_HAS_ONE, "A asks all to renew", "x renews A", "z takes back the key of A"]
    assert "z: 1=A 2" in model.show(replay(model, repaired))
    with pytest.raises(LookupError):
        replay(model, [*repaired, "A has renewed, for 2"])
    replay(model, [*repaired, "y renews A", "A has renewed, for 2"])


def test_a_node_that_forgot_grants_no_slot_in_quarantine() -> None:
    model = Slots(Rules(ttl=2, guard=2))
    forgot = [*A_HAS_ONE, "x forgets", "B asks all"]
    assert "x: - quarantined 2" in model.show(replay(model, forgot))
    with pytest.raises(LookupError):
        replay(model, [*forgot, "x grants B slot 2"])
