"""Fences of readers: what the model can do at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.explore import explore, replay
from tests.model.rw_fence_state import Rules
from tests.model.rw_fencing import RwFencing

pytestmark = pytest.mark.once

A_WROTE = [
    "A proposes 2",
    "x grants A and stores 2",
    "y grants A and stores 2",
    "A has the lease with fence 2",
]
A_LEFT = [*A_WROTE, "A's key on x goes", "A's key on y goes"]


def test_a_reader_after_a_writer_reads_the_version_of_that_writer_in_one_round() -> None:
    model = RwFencing(Rules())
    after = replay(
        model,
        [
            *A_LEFT,
            "R asks to read",
            "x lets R read at 3",
            "y lets R read at 3",
            "R reads with fence 3",
        ],
    )
    assert model.show(after) == "x: R 3   y: R 3   z: - 0"


def test_a_reader_whose_nodes_differ_writes_the_highest_counter_back() -> None:
    model = RwFencing(Rules())
    differ = [*A_LEFT, "R asks to read", "x lets R read at 3", "z lets R read at 1"]
    for fence in (1, 3):
        with pytest.raises(LookupError):
            replay(model, [*differ, f"R reads with fence {fence}"])
    after = replay(
        model, [*differ, "R writes 3 back to z", "z takes 3 back from R", "R reads with fence 3"]
    )
    assert model.show(after) == "x: R 3   y: - 2   z: R 3"


def test_a_node_without_the_readers_entry_takes_no_fence_back() -> None:
    model = RwFencing(Rules())
    asked = [
        *A_LEFT,
        "R asks to read",
        "x lets R read at 3",
        "z lets R read at 1",
        "R writes 3 back to z",
    ]
    with pytest.raises(LookupError):
        replay(model, [*asked, "R's key on z goes", "z takes 3 back from R"])


def test_the_next_writer_has_a_fence_above_that_of_the_readers() -> None:
    model = RwFencing(Rules())
    read = [
        *A_LEFT,
        "R asks to read",
        "x lets R read at 3",
        "y lets R read at 3",
        "R reads with fence 3",
        "R's key on x goes",
    ]
    stores = [*read, "B proposes 4", "x grants B and stores 4", "z grants B and stores 4"]
    assert not model.broken(replay(model, [*stores, "B has the lease with fence 4"]))
    with pytest.raises(LookupError):
        replay(model, [*read, "B proposes 2", "x grants B and stores 2"])


def test_a_writer_that_lost_its_key_to_a_reader_sets_no_key_again() -> None:
    model = RwFencing(Rules(repairing=True))
    lost = [*A_WROTE, "A's key on x goes"]
    replay(model, [*lost, "x takes A's key back"])
    with pytest.raises(LookupError):
        replay(
            model,
            [
                *lost,
                "R asks to read",
                "x lets R read at 3",
                "R's key on x goes",
                "x takes A's key back",
            ],
        )


def test_a_downgraded_lease_sets_its_key_again_beside_readers() -> None:
    model = RwFencing(Rules(repairing=True))
    downgraded = [*A_WROTE, "A downgrades", "x turns A into a reader", "A's key on x goes"]
    after = replay(
        model, [*downgraded, "R asks to read", "x lets R read at 3", "x takes A's key back"]
    )
    assert model.show(after) == "x: AR 3   y: A 2   z: - 0"


def test_a_read_grant_raises_the_counter_to_the_end_of_the_nodes_quarantine() -> None:
    rules = Rules(forgetting=True, guard=2, ticks=2, round_ticks=1, floor="node")
    model = RwFencing(rules)
    forgot = [*A_LEFT, "x forgets", "a tick passes", "a tick passes"]
    assert model.show(replay(model, forgot)) == "t=2   x: - 0 floor 6   y: - 2   z: - 0"
    read = [
        *forgot,
        "R asks to read",
        "x lets R read at 7",
        "z lets R read at 1",
        "R writes 7 back to z",
    ]
    replay(model, [*read, "z takes 7 back from R", "R reads with fence 7"])


def test_a_counter_that_a_late_request_stored_is_no_lower_bound() -> None:
    """A fence that the reader proposes where the counter is missing is not enough."""
    late = [
        "A proposes 2",
        "z grants A and stores 2",
        "B proposes 4",
        "x grants B and stores 4",
        "y grants B and stores 4",
        "B has the lease with fence 4",
        "x forgets",
        "a tick passes",
        "a tick passes",
    ]
    gone = ["A's key on x goes", "A's key on z goes"]
    rules = Rules(forgetting=True, guard=2, ticks=2, floor="proposal")
    read = [
        "R asks to read and proposes 6",
        "x lets R read at 3",
        "z lets R read at 3",
        "R reads with fence 3",
    ]
    after = replay(RwFencing(rules), [*late, "x grants A and stores 2", *gone, *read])
    assert RwFencing(rules).broken(after) == "R reads 3 on x after B wrote 4"
    sound = RwFencing(replace(rules, floor="node"))
    replay(
        sound,
        [
            *late,
            "x grants A and stores 2",
            *gone,
            "R asks to read",
            "x lets R read at 7",
            "z lets R read at 3",
        ],
    )


def test_only_the_order_of_tenancies_needs_the_token_of_a_write_back() -> None:
    report = explore(RwFencing(Rules(width=1, order="interval", compare_token=False)))
    assert report.complete
    assert not report.violation
