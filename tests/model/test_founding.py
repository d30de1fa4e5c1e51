"""Founding works within its limits. Beyond each limit the model finds two holders."""

from __future__ import annotations

import pytest

from tests.model.explore import replay
from tests.model.founding import Founding, Rules

pytestmark = pytest.mark.once

MARKED = [f"{node} is marked by one who read it 0 ago" for node in "xyz"]


def reads(promoter: str, nodes: str) -> list[str]:
    return [f"{promoter} reads {node} as founding" for node in nodes]


def test_a_set_whose_nodes_all_answer_waits_for_nothing() -> None:
    model = Founding(Rules(clients=2))
    after = replay(
        model,
        [
            *MARKED,
            *reads("P", "xy"),
            "P reads z as founding and decides",
            *(f"P promotes {node}" for node in "xyz"),
            "A asks all",
            "x grants A",
            "y grants A",
            "A has the lock for 2",
        ],
    )
    assert model.show(after) == "x: trusted, A 2   y: trusted, A 2   z: trusted   A holds 2"


def test_a_set_with_a_missing_node_waits_for_the_guard_time() -> None:
    model = Founding(Rules(promoters=1))
    waited = [*MARKED[:2], *reads("P", "xy"), "a tick passes", "a tick passes"]
    assert model.show(replay(model, waited)) == "x: founding 1   y: founding 1   z: none"
    assert (
        model.show(replay(model, [*waited, "a tick passes"])) == "x: trusted   y: trusted   z: none"
    )


def test_a_node_that_forgot_beside_trusted_ones_is_not_promoted() -> None:
    model = Founding(Rules(promoters=1))
    trusted = [*MARKED, *["a tick passes"] * 5]
    forgot = [*trusted, "x forgets", MARKED[0], "P reads x as founding"]
    assert model.show(replay(model, forgot)) == "x: founding 3, forgot 2   y: trusted   z: trusted"
    for step in ("P reads y as founding", "P promotes x"):
        with pytest.raises(LookupError):
            replay(model, [*forgot, step])


def test_no_node_forgets_beyond_the_limits() -> None:
    model = Founding(Rules(promoters=1))
    alone = [MARKED[0], "y is marked by one who read it 1 ago", "a tick passes", "a tick passes"]
    assert model.show(replay(model, alone)) == "x: founding 1   y: trusted   z: none"
    for step in ("y forgets", "y restarts with the data of its founding"):
        with pytest.raises(LookupError):
            replay(model, [*alone, step])
    settled = [*alone, "a tick passes", "a tick passes", "a tick passes", "x forgets"]
    assert model.show(replay(model, settled)) == "x: none, forgot 2   y: trusted   z: none"


def test_when_no_other_node_is_trusted_there_may_be_two_holders() -> None:
    model = Founding(Rules(clients=2, promoters=1, total_loss=True))
    after = replay(
        model,
        [
            *MARKED,
            "a tick passes",
            "a tick passes",
            "a tick passes",
            "a tick passes",
            "a tick passes",
            "A asks all",
            "x grants A",
            "y grants A",
            "A has the lock for 2",
            # Three servers in one rack lose power.
            "z forgets",
            "y forgets",
            "x forgets",
            *MARKED,
            *reads("P", "xy"),
            "P reads z as founding and decides",
            "P promotes x",
            "P promotes y",
            "B asks all",
            "x grants B",
            "y grants B",
            "B has the lock for 2",
        ],
    )
    assert model.broken(after) == "A and B have the lock"


def test_when_other_nodes_are_trusted_for_only_a_second_there_may_be_two_holders() -> None:
    model = Founding(Rules(clients=2, settled=0))
    after = replay(
        model,
        [
            *MARKED,
            *reads("Q", "xy"),
            *reads("P", "xy"),
            "P reads z as founding and decides",
            *(f"P promotes {node}" for node in "xyz"),
            "A asks all",
            "x grants A",
            "z grants A",
            "A has the lock for 2",
            "a tick passes",
            # A second after all were promoted, one is flushed; Q has read the other two as
            # founding, a second ago.
            "z forgets",
            MARKED[2],
            "Q reads z as founding and decides",
            "Q promotes z",
            "B asks all",
            "y grants B",
            "z grants B",
            "B has the lock for 2",
        ],
    )
    assert model.broken(after) == "A and B have the lock"


def test_a_promoter_whose_reads_are_two_ticks_old_has_to_read_again() -> None:
    model = Founding(Rules())
    read = [*MARKED, *reads("Q", "xy"), "a tick passes"]
    replay(model, [*read, "Q reads z as founding and decides"])
    with pytest.raises(LookupError):
        replay(model, [*read, "a tick passes", "Q reads z as founding and decides"])


def test_nodes_that_all_forgot_wait_if_a_witness_remembers_them() -> None:
    model = Founding(Rules(promoters=1, witnesses=True))
    trusted = [
        *MARKED,
        *reads("P", "xy"),
        "P reads z as founding and decides",
        *(f"P promotes {node}" for node in "xyz"),
    ]
    forgot = [*trusted, *(f"{node} forgets" for node in "xyz")]
    waits = [*forgot, *(f"{node} is marked by a witness who read it 0 ago" for node in "xyz")]
    after = "   ".join(f"{node}: waiting 3, forgot 2, known 2" for node in "xyz")
    assert model.show(replay(model, waits)) == after
    with pytest.raises(LookupError):
        replay(model, [*waits, "P reads x as founding"])
    later = [*waits, "a tick passes", "a tick passes", "a tick passes"]
    assert model.show(replay(model, later)) == "x: trusted   y: trusted   z: trusted", (
        "not for ever"
    )


def test_a_set_that_no_witness_remembers_any_more_is_founded_anew() -> None:
    model = Founding(Rules(promoters=1, witnesses=True))
    trusted = [*MARKED, *["a tick passes"] * 3]
    forgot = [
        *trusted,
        *(f"{node} forgets" for node in "xyz"),
        "a tick passes",
        "a tick passes",
        MARKED[0],
    ]
    assert model.show(replay(model, forgot)) == "x: founding 3   y: none   z: none"
