"""The knowledge of a waiter about the nodes, and the one rule of waking."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._core.waking import Outlook

NODES = st.lists(st.tuples(st.floats(0, 100) | st.just(inf), st.booleans()), min_size=1, max_size=9)


@given(NODES)
def test_a_waiter_asks_once_a_quorum_of_nodes_that_can_grant_may_do_so(
    known: list[tuple[float, bool]],
) -> None:
    quorum = quorum_of(len(known))
    outlook = Outlook(len(known), quorum)
    assert outlook.forecast(0.0) == (inf, 0, inf), "nothing is known yet"
    for node, (at, votes) in zip(outlook.nodes, known, strict=True):
        node.free_at, node.votes = at, votes
    usable = [at for at, votes in known if votes]
    enough = [at for at in usable if sum(other <= at for other in usable) >= quorum]
    for now in (0.0, 50.0, 100.0):
        at, free, following = outlook.forecast(now)
        assert at == min(enough, default=inf)
        assert free == sum(at <= now for at in usable)
        assert (at <= now) == (free >= quorum)
        assert following == min((at for at in usable if at > now), default=inf)


def test_a_refused_attempt_clears_the_known_state_and_keeps_the_entries() -> None:
    node = Outlook(3, 2).nodes[0]
    node.free_at, node.answered_at, node.rank, node.entered, node.tracked = 1.0, 1.0, 0, True, True
    node.refused(votes=False)
    assert (node.free_at, node.votes, node.answered, node.tracked) == (inf, False, False, False)
    assert node.entered
    assert node.rank == 0, "people are shown the last rank until there is a new one"


def test_a_node_that_is_lost_has_no_rank_and_sends_nothing() -> None:
    node = Outlook(3, 2).nodes[0]
    node.free_at, node.answered_at, node.rank, node.notified, node.tracked = 1.0, 1.0, 2, True, True
    node.lost()
    assert (node.free_at, node.answered, node.rank, node.notified, node.tracked) == (
        inf,
        False,
        -1,
        False,
        False,
    )


def test_a_key_is_tracked_on_a_quorum_of_nodes_and_not_on_more() -> None:
    outlook = Outlook(5, 3)
    assert outlook.untracked == 3
    for node in outlook.nodes[:2]:
        node.tracked = True
    assert outlook.untracked == 1
    for node in outlook.nodes:
        node.tracked = True
    assert outlook.untracked == 0


def test_the_rank_of_a_waiter_is_that_of_most_nodes_that_know_it() -> None:
    outlook = Outlook(3, 2)
    assert outlook.rank is None
    for node, rank in zip(outlook.nodes, (-1, 4, 3), strict=True):
        node.rank = rank
    assert outlook.rank == 3


def test_instants_that_are_forgotten_are_not_known_and_all_nodes_count_again() -> None:
    outlook = Outlook(3, 2)
    for node in outlook.nodes:
        node.free_at, node.votes = 1.0, False
    outlook.count_all()
    assert outlook.forecast(0.0)[0] == 1.0
    outlook.forget_expiries()
    assert outlook.forecast(0.0)[0] == inf


def test_a_semaphore_needs_a_quorum_for_one_of_its_slots() -> None:
    outlook = Outlook(3, 2, any_key=True)
    for node, slot in zip(outlook.nodes, (1, 2), strict=False):
        node.learn(10.0, (slot,), 10.0)
    assert (outlook.forecast(10.0)[:2], outlook.slot(10.0)) == ((inf, 2), 0)
    outlook.nodes[2].learn(10.0, (2, 3), 10.0)
    assert (outlook.forecast(0.0)[0], outlook.slot(10.0)) == (10.0, 2)
    outlook.nodes[0].refused(votes=True)
    outlook.nodes[1].refused(votes=True)
    assert (outlook.forecast(0.0)[0], outlook.slot(10.0)) == (inf, 0)


def test_a_slot_that_is_offered_beside_others_does_not_close_them() -> None:
    outlook = Outlook(3, 2, any_key=True)
    outlook.nodes[0].learn(10.0, (4,), 10.0)
    outlook.nodes[0].learn(10.0, (2,), 10.0)
    outlook.nodes[1].learn(10.0, (4,), 10.0)
    assert (outlook.forecast(0.0)[0], outlook.slot(10.0)) == (10.0, 4)
    outlook.nodes[1].learn(10.0, (2,), 10.0)
    assert outlook.slot(10.0) == 2, (
        "the lowest one is offered to this waiter, and others to those behind it"
    )
    outlook.nodes[1].learn(50.0, (5,), 10.0)
    assert outlook.nodes[1].slots == (5,)
