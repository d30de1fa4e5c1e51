"""Readers and writers: what the model can do at all."""

from __future__ import annotations

import pytest

from tests.model.explore import replay
from tests.model.rw_nodes import Rules
from tests.model.rwlock import RwLock

pytestmark = pytest.mark.once

A_READS = ["A asks all to read", "x grants A to read", "y grants A to read", "A reads for 2"]
A_WRITES = ["A asks all to write", "x grants A to write", "y grants A to write", "A writes for 2"]


def test_readers_share_and_each_has_its_own_expiry() -> None:
    model = RwLock(Rules())
    both = [
        *A_READS,
        "a tick passes",
        "B asks all to read",
        "x grants B to read",
        "y grants B to read",
        "B reads for 2",
    ]
    shown = "x: read A 1 B 2   y: read A 1 B 2   z: -   A reads 1   B reads 2"
    assert model.show(replay(model, both)) == shown
    assert (
        model.show(replay(model, [*both, "a tick passes"]))
        == "x: read B 1   y: read B 1   z: -   B reads 1"
    )


def test_a_node_with_a_reader_refuses_writers_and_a_node_with_a_writer_refuses_all() -> None:
    model = RwLock(Rules())
    with pytest.raises(LookupError):
        replay(model, [*A_READS, "B asks all to write", "x grants B to write"])
    for kind in ("read", "write"):
        with pytest.raises(LookupError):
            replay(model, [*A_WRITES, f"B asks all to {kind}", f"x grants B to {kind}"])


def test_a_dead_reader_refuses_a_writer_for_its_own_ttl_and_no_longer() -> None:
    model = RwLock(Rules(deaths=True))
    died = [
        *A_READS,
        "A dies",
        "a tick passes",
        "B asks all to read",
        "x grants B to read",
        "y grants B to read",
    ]
    left = [*died, "B gives up", "C asks all to write"]
    assert model.show(replay(model, left)) == "x: read A 1   y: read A 1   z: -"
    with pytest.raises(LookupError):
        replay(model, [*left, "x grants C to write"])
    later = [*left, "a tick passes", "x grants C to write", "y grants C to write", "C writes for 1"]
    assert model.show(replay(model, later)) == "x: write C 2   y: write C 2   z: -   C writes 1"


def test_a_downgrade_lets_readers_in_node_by_node_and_no_writer() -> None:
    model = RwLock(Rules())
    asked = [*A_WRITES, "A asks all to downgrade", "x turns the writer A into a reader"]
    assert model.show(replay(model, asked)) == "x: read A 2   y: write A 2   z: -   A reads 2"
    replay(model, [*asked, "B asks all to read", "x grants B to read"])
    for kind, node in (("read", "y"), ("write", "x"), ("write", "y")):
        with pytest.raises(LookupError):
            replay(model, [*asked, f"B asks all to {kind}", f"{node} grants B to {kind}"])


def test_a_node_that_missed_the_downgrade_converts_at_the_next_renewal() -> None:
    model = RwLock(Rules())
    converted = [
        *A_WRITES,
        "A asks all to downgrade",
        "x turns the writer A into a reader",
        "A asks all to renew",
    ]
    after = replay(
        model,
        [
            *converted,
            "x renews the reader A",
            "y turns the writer A into a reader",
            "A has renewed, for 2",
        ],
    )
    assert model.show(after) == "x: read A 2   y: read A 2   z: -   A reads 2"


def test_a_missing_entry_is_set_again_beside_readers_and_not_past_a_writer() -> None:
    model = RwLock(Rules())
    beside = [
        *A_READS,
        "A asks all to renew",
        "B asks all to read",
        "z grants B to read",
        "z takes back the reader A",
    ]
    assert "z: read A 2 B 2" in model.show(replay(model, beside))
    past = [*A_READS, "A asks all to renew", "B asks all to write", "z grants B to write"]
    with pytest.raises(LookupError):
        replay(model, [*past, "z takes back the reader A"])


def test_a_missing_string_is_set_again_only_where_no_reader_is() -> None:
    model = RwLock(Rules())
    asked = [*A_WRITES, "A asks all to renew"]
    replay(model, [*asked, "z takes back the writer A"])
    with pytest.raises(LookupError):
        replay(
            model, [*asked, "B asks all to read", "z grants B to read", "z takes back the writer A"]
        )


def test_a_node_in_quarantine_lets_no_reader_in_and_takes_none_back() -> None:
    model = RwLock(Rules())
    forgot = [*A_READS, "A asks all to renew", "x forgets", "B asks all to read"]
    assert "x: - quarantined 2" in model.show(replay(model, forgot))
    for step in ("x grants B to read", "x takes back the reader A"):
        with pytest.raises(LookupError):
            replay(model, [*forgot, step])
