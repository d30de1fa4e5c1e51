"""The choice of a semaphore's slot, and the answers to an inspection of its slots."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core.replies import FREE, Free, Held, KeyLook, Looked, NotALock
from aioredlock_ng._core.slots import free_slot, free_slots, may_be_free, soonest
from aioredlock_ng._core.votes import Reply, Unsent

HELD = Held(3.0, b"token")
OFFERED = Free(offered=0.1)
DOWN = Unsent("not connected")

draws = st.floats(0, 1, exclude_max=True)


def looked(*keys: KeyLook) -> Looked:
    return Looked(keys)


@given(st.integers(1, 9), st.sets(st.integers(1, 9)), st.data())
def test_an_attempt_asks_for_no_slot_that_its_own_process_uses(
    limit: int, used: set[int], data: st.DataObject
) -> None:
    taken = {number for number in used if number <= limit}
    recent = data.draw(st.lists(st.integers(1, limit), unique=True))
    number = free_slot(taken, recent, limit, data.draw(draws))
    assert 1 <= number <= limit
    assert number not in taken or len(taken) == limit


def test_a_process_asks_first_for_the_slot_that_it_released_last() -> None:
    for draw in (0.0, 0.5, 0.99):
        assert free_slot({4}, [1, 3, 4], 5, draw) == 3


def test_processes_that_know_no_free_slot_ask_for_each_slot_equally_often() -> None:
    asked = [free_slot((), (), 4, draw / 100) for draw in range(100)]
    assert [asked.count(number) for number in (1, 2, 3, 4)] == [25] * 4


def test_a_slot_is_free_only_if_a_quorum_has_neither_a_holder_nor_an_offer_for_it() -> None:
    replies: list[Reply] = [
        looked(FREE, OFFERED, FREE, HELD),
        looked(FREE, FREE, HELD, OFFERED),
        looked(HELD, OFFERED, FREE, FREE),
        DOWN,
        None,
    ]
    assert free_slots(replies[:3], 2) == [1, 3]
    assert free_slots(replies, 3) == []
    assert may_be_free(replies, 3, 1), "the silent node may show slot 1 or 3"
    assert not may_be_free(replies, 3, 0)


def test_a_single_node_that_has_not_answered_can_show_no_free_slot_beside_failed_nodes() -> None:
    assert not may_be_free([DOWN, DOWN, None], 2, 1)


@pytest.mark.parametrize(
    ("replies", "left"),
    [
        ([looked(HELD, Held(2.0, b"other")), looked(Held(5.0, b"token"), FREE)], 2.0),
        ([looked(Held(inf, b"foreign"), OFFERED), DOWN, None], None),
        ([looked(NotALock("hash", 1.0), Held(4.0, b"token"))], 4.0),
        ([], None),
    ],
)
def test_the_first_slot_to_expire_gives_the_time_to_retry(
    replies: list[Reply], left: float | None
) -> None:
    assert soonest(replies) == left
