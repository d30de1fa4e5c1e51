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


def test_the_head_of_a_queue_lets_a_node_track_that_answers_and_has_no_other_watch() -> None:
    outlook = Outlook(5, 5)
    first, second, tracked, watched, unknown = outlook.nodes
    for node in (first, tracked, watched, unknown):
        node.rank = 0
    second.rank, tracked.tracked, watched.watched = 1, True, True
    for node in outlook.nodes:
        node.answered_at = 1.0
    unknown.answered_at = -inf
    assert outlook.untracked == 3, "the holder watches one of the keys"
    assert outlook.begin_refresh(2.0, [True] * 5) == ([1, 2, 3, 4], [0])


def test_no_more_than_a_quorum_of_nodes_is_asked_to_track_and_only_nodes_that_can() -> None:
    outlook = Outlook(5, 3)
    for node in outlook.nodes:
        node.rank, node.answered_at = 0, 1.0
    assert outlook.begin_refresh(2.0, [True] * 5) == ([3, 4], [0, 1, 2])
    for node in outlook.nodes:
        node.answered_at = 3.0
    assert outlook.begin_refresh(4.0, [False, True, True, False, True]) == ([0, 3], [1, 2, 4])


def test_a_refresh_leaves_out_a_node_that_reports_changes_and_has_just_named_a_time() -> None:
    outlook = Outlook(3, 2)
    for node, (at, free_at) in zip(
        outlook.nodes, [(5.0, 9.0), (4.0, 9.0), (5.0, inf)], strict=True
    ):
        node.tracked, node.answered_at, node.free_at = True, at, free_at
    assert outlook.begin_refresh(4.0, [True] * 3) == ([1, 2], [])
    assert [node.answered for node in outlook.nodes] == [True, False, False]


def test_a_waiter_far_behind_asks_each_node_that_answers_in_turn() -> None:
    outlook = Outlook(4, 3)
    for index in (0, 2, 3):
        outlook.nodes[index].answered_at = 1.0
    asked = [outlook.begin_refresh(2.0, [True] * 4, everywhere=False) for _ in range(6)]
    assert asked == [([index], []) for index in (2, 3, 0, 2, 3, 0)]
    assert [node.answered for node in outlook.nodes] == [True, False, True, True]


def test_an_expiry_is_sure_if_the_node_reports_renewals_or_has_answered_since() -> None:
    outlook = Outlook(3, 2)
    for node in outlook.nodes:
        node.free_at, node.answered_at = 5.0, 4.0
    tracking, answered, silent = outlook.nodes
    assert outlook.unsure(5.0), "the holder may have renewed every key"
    tracking.tracked, answered.answered_at = True, 5.0
    assert not outlook.unsure(5.0)
    assert outlook.unsure(4.9), "no node may grant yet"
    answered.votes = False
    assert outlook.unsure(5.0)
    silent.answered_at = 6.0
    assert not outlook.unsure(6.0)


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


def test_a_slot_that_was_not_free_yet_does_not_stay_beside_a_later_offer() -> None:
    node = Outlook(3, 2, any_key=True).nodes[0]
    node.learn(9.0, (1,), 5.0)
    node.learn(5.0, (2,), 5.0)
    assert (node.free_at, node.slots) == (5.0, (2,))
