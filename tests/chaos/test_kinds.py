"""The rules of single kinds, on histories written by hand: each rule broken once, and kept once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.check import check
from tests.chaos.story import BEGIN, MS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.story import Story

pytestmark = pytest.mark.once


def slot(number: int, limit: int = 2, **more: Any) -> dict[str, Any]:
    return {"c": "semaphore", "s": number, "m": limit, **more}


LEADS = {"c": "election", "how": "run"}


def test_holders_of_different_slots_may_overlap(story: Story) -> None:
    story.hold("one", 10, 50, **slot(1), fence=7)
    story.hold("two", 20, 60, **slot(2), fence=5)
    assert story.findings() == ([], [])


def test_two_holders_of_one_slot_are_an_overlap(story: Story) -> None:
    story.hold("one", 10, 50, **slot(1))
    story.hold("two", 20, 60, **slot(1))
    assert story.findings() == (["overlap"], [])


def test_a_slot_and_the_lock_of_its_name_exclude_each_other(story: Story) -> None:
    story.hold("one", 10, 50, **slot(1))
    story.hold("two", 20, 60, name="a#1")
    assert story.findings() == (["overlap"], [])


@pytest.mark.parametrize(("limit", "found"), [(2, ["too many holders"]), (3, [])])
def test_a_semaphore_has_no_more_holders_than_the_greatest_limit(
    limit: int, found: list[str], story: Story
) -> None:
    story.hold("one", 10, 50, **slot(1))
    story.hold("one", 11, 50, **slot(2))
    story.hold("two", 12, 60, **slot(3, limit))
    beyond = ["slot beyond the limit"] if limit < 3 else []
    assert story.findings() == ([*beyond, *found], [])


def test_a_holder_whose_keys_were_deleted_is_not_counted(story: Story) -> None:
    story.hold("one", 10, 520, **slot(1, 1), token="taken", lost=505)
    story.delete(500, "taken", name="a#1")
    story.hold("two", 502, 520, **slot(1, 1))
    assert "too many holders" not in story.findings()[0]


def test_a_slot_beyond_the_limit_of_its_holder_is_found(story: Story) -> None:
    story.hold("one", 10, 50, **slot(3, 2))
    assert story.findings() == (["slot beyond the limit"], [])


def test_a_fence_of_a_slot_that_does_not_rise_is_found(story: Story) -> None:
    story.hold("one", 10, 20, **slot(1), fence=7)
    story.hold("two", 30, 40, **slot(1), fence=7)
    assert story.findings() == (["fence"], [])


@pytest.mark.parametrize(("others", "found"), [(1, ["held by nobody"]), (2, [])])
def test_a_single_attempt_is_refused_only_if_all_slots_are_held(
    others: int, found: list[str], story: Story
) -> None:
    for number in range(others):
        story.hold("two", 5_000 + number, 5_200, **slot(number + 1))
    story.event(
        "one",
        5_100,
        "fail",
        a=BEGIN + 5_090 * MS,
        n=["a"],
        c="semaphore",
        m=2,
        w="try",
        why="held",
        v="",
    )
    assert story.findings() == (found, [])


@pytest.mark.parametrize(("second", "found"), [(True, []), (False, ["not acquired"])])
def test_a_waiter_of_a_semaphore_waits_in_vain_only_if_all_slots_stay_held(
    second: bool, found: list[str], story: Story
) -> None:
    for got in (50, 1_050, 2_050):
        story.hold("two", got, got + 990, **slot(1))
        if second:
            story.hold("two", got, got + 990, **slot(2))
    about: dict[str, Any] = {"n": ["a"], "c": "semaphore", "m": 2, "w": "with"}
    story.event("one", 3_100, "fail", a=BEGIN + 100 * MS, why="AcquireTimeout", v="hhh", **about)
    assert story.findings()[0] == found


def test_two_bodies_of_leaders_at_once_are_found(story: Story) -> None:
    story.fault(600, 6_000, 6_500, "hang", 0, 1)
    story.hold("one", 10, 1_700, **LEADS, deadline=1_500, lost=1_690)
    story.hold("two", 1_600, 1_650, **LEADS)
    assert story.findings()[0] == ["two leaders work"]


def test_a_leader_whose_body_ended_in_time_is_followed_by_the_next(story: Story) -> None:
    story.hold("one", 10, 1_000, **LEADS, deadline=1_500)
    story.hold("two", 1_001, 1_650, **LEADS)
    assert story.findings() == ([], [])


def test_a_leader_that_stood_still_may_work_beside_the_next(story: Story) -> None:
    story.nemesis(100, "stop", p="one")
    story.nemesis(1_690, "cont", p="one")
    story.hold("one", 10, 1_700, **LEADS, deadline=1_500, lost=1_695)
    story.hold("two", 1_600, 1_650, **LEADS)
    assert story.findings()[0] == []
    assert "two leaders work, the first one stood still" in story.findings()[1]


@pytest.mark.parametrize(("since", "found"), [(90, False), (110, True)])
def test_a_grant_that_was_recorded_late_is_judged_by_its_attempt(
    since: float, found: bool, story: Story
) -> None:
    story.hold("two", 105, 300, since=100, fence=9)
    story.hold("one", 200, 260, since=since, lost=250, token="taken", fence=7)
    story.delete(103, "taken")
    assert ("overlap" in story.findings()[0]) is found
    assert "fence" not in story.findings()[0]


def test_a_term_that_ends_without_need_is_found(story: Story) -> None:
    story.hold("one", 10, 1_000, **LEADS, o="stepped down")
    assert story.findings() == (["lost needlessly"], [])


@pytest.mark.parametrize(("got", "found"), [(509, []), (508, ["granted before min_hold ended"])])
@pytest.mark.parametrize("killed", [False, True])
def test_nothing_is_granted_before_a_min_hold_has_ended(
    killed: bool, got: float, found: list[str], story: Story
) -> None:
    story.hold("one", 10, None if killed else 20, h=0.5)
    if killed:
        story.nemesis(20, "kill", p="one")
    story.hold("two", got, 600)
    assert story.findings() == (found, [])


def test_a_min_hold_ends_with_the_deletion_of_its_keys(story: Story) -> None:
    story.hold("one", 10, 120, h=0.5, token="taken", lost=105)
    story.delete(100, "taken")
    story.hold("two", 130, 140)
    kinds = ["granted before min_hold ended, its keys were deleted", "lost: its keys were deleted"]
    assert story.findings() == ([], kinds)


def test_a_lease_that_was_over_before_a_min_hold_began_is_not_granted_in_it(story: Story) -> None:
    story.nemesis(15, "stop", p="two")
    story.nemesis(2_050, "cont", p="two")
    story.hold("two", 2_100, 2_110, since=10, asked=9, deadline=1_490, lost=2_105)
    story.hold("one", 2_000, 2_020, h=0.5)
    assert story.findings()[0] == []


def test_the_min_hold_of_another_holder_is_a_reason_to_refuse(story: Story) -> None:
    story.hold("two", 4_000, 4_010, h=1.2)
    story.event("one", 5_100, "fail", a=BEGIN + 5_090 * MS, n=["a"], w="try", why="held", v="")
    assert story.findings() == ([], [])


@pytest.mark.parametrize(
    ("left", "token", "found"),
    [
        (900, "aioredlock_ng:over:mine", []),
        (1_700, "aioredlock_ng:over:mine", ["key left behind"]),
        (900, "aioredlock_ng:over:other", ["key left behind"]),
        (-1, "aioredlock_ng:over:mine", ["key left behind"]),
        (900, "mine", ["key left behind"]),
    ],
    ids=["in time", "too long", "unknown", "endless", "not marked"],
)
def test_only_a_min_hold_leaves_keys_and_only_until_its_end(
    left: int, token: str, found: list[str], story: Story
) -> None:
    story.hold("one", 8_900, 8_910, h=1.0, token="mine")
    story.nemesis(9_000, "leftovers", n=0, keys=[["a", left, token]])
    assert story.findings() == (found, [])


def test_a_node_that_could_not_be_asked_keeps_the_key_of_a_min_hold_for_its_life(
    story: Story,
) -> None:
    story.fault(8_000, 8_950, 8_990, "fill", 0)
    story.hold("one", 8_900, 8_910, h=1.0, token="mine")
    story.nemesis(9_000, "leftovers", n=0, keys=[["a", 900, "mine"]])
    assert story.findings() == ([], [])


@pytest.mark.parametrize(("killed", "found"), [(8_900, []), (7_000, ["key left behind"])])
def test_a_killed_process_leaves_its_keys_for_their_life(
    killed: float, found: list[str], story: Story
) -> None:
    story.nemesis(killed, "kill", p="one")
    story.nemesis(9_000, "leftovers", n=0, keys=[["a", 900, "token"]])
    assert story.findings() == (found, [])


@pytest.mark.parametrize(("h", "found"), [({"h": 1.0}, []), ({}, ["endless key"])])
def test_only_names_with_a_min_hold_have_keys_that_live_longer_than_the_ttl(
    h: dict[str, float], found: list[str], story: Story
) -> None:
    story.nemesis(1, "begin", nodes=3, ttl=1.5, life=1.8)
    story.hold("one", 100, 110, **h)
    story.nemesis(120, "look", n=0, keys=[["a", 1_790, "token"]], of=1)
    assert story.findings() == (found, [])


@pytest.mark.parametrize(
    ("more", "found"), [({"fair": True}, ["passed on"]), ({"h": 0.001}, ["passed on"]), ({}, [])]
)
def test_a_lease_with_an_order_or_a_time_of_its_own_has_its_own_grant(
    more: dict[str, Any], found: list[str], story: Story
) -> None:
    story.hold("one", 10, 20, token="same")
    story.hold("one", 30, 40, token="same", **more)
    assert story.findings() == (found, [])


def passed(story: Story, times: int, **more: Any) -> None:
    """Two waits for a name that two gets again and again, each time asked for later."""
    story.nemesis(0, "begin", nodes=3, ttl=1.5)
    for number in range(times):
        at = 1_100 + 10 * number
        story.hold("two", at, at + 5, asked=at - 1, token=f"two-{number}")
    story.hold("one", 5_000, 5_010, asked=100, **more)


@pytest.mark.parametrize(("times", "found"), [(12, []), (13, ["overtaken"])])
def test_a_waiter_that_is_passed_again_and_again_is_found(
    times: int, found: list[str], story: Story
) -> None:
    passed(story, times)
    assert story.findings()[0] == found


def test_leases_of_one_grant_pass_a_waiter_once(story: Story) -> None:
    for number in range(30):
        at = 1_100 + 10 * number
        story.hold("two", at, at + 5, asked=at - 1, token="same")
    story.hold("one", 5_000, 5_010, asked=100)
    assert story.findings() == ([], [])


def test_higher_slots_do_not_pass_a_waiter_with_a_lower_limit(story: Story) -> None:
    for number in range(30):
        at = 1_100 + 10 * number
        story.hold("two", at, at + 5, asked=at - 1, token=f"two-{number}", **slot(2))
    story.hold("one", 5_000, 5_010, asked=100, **slot(1, 1))
    assert story.findings() == ([], [])


@pytest.mark.parametrize("way", ["try", "set", "without a majority", "stopped"])
def test_no_order_is_promised_to_waiters_outside_of_a_queue(way: str, story: Story) -> None:
    if way == "without a majority":
        story.fault(600, 900, 1_000, "hang", 0, 1)
    if way == "stopped":
        story.nemesis(700, "stop", p="one")
        story.nemesis(800, "cont", p="one")
    ways: dict[str, dict[str, Any]] = {"try": {"how": "try"}, "set": {"names": ["a", "b"]}}
    more = ways.get(way, {})
    passed(story, 30, **more)
    assert "overtaken" not in story.findings()[0]


@pytest.mark.parametrize(("word", "found"), [("stall", []), ("blocked", ["lost needlessly"])])
def test_a_blocked_loop_is_no_reason_for_a_loss_if_the_engine_has_a_thread(
    word: str, found: list[str], story: Story
) -> None:
    story.event("one", 1_600, word, s=BEGIN + 100 * MS)
    story.hold("one", 10, 1_590, deadline=1_480, lost=1_585)
    assert story.findings()[0] == found


@pytest.mark.parametrize(
    ("why", "found"),
    [("the lease ended before this task ran", []), ("guu", ["not acquired"])],
    ids=["lost meanwhile", "not granted"],
)
def test_a_task_on_a_blocked_loop_may_learn_of_its_grant_too_late(
    why: str, found: list[str], story: Story
) -> None:
    story.event("one", 1_900, "blocked", s=BEGIN + 900 * MS)
    about: dict[str, Any] = {"n": ["a"], "w": "with", "why": "QuorumUnreachable", "v": why}
    story.event("one", 1_910, "fail", a=BEGIN + 800 * MS, **about)
    assert story.findings() == (found, [])


def test_a_lease_ends_when_its_thread_declares_the_loss(story: Story) -> None:
    story.event("one", 1_300, "blocked", s=BEGIN + 100 * MS)
    story.fault(880, 1_400, 1_500, "hang", 0, 1)
    story.hold("one", 10, 1_310, lost=1_305, over=900)
    story.hold("two", 910, 920)
    assert story.findings() == ([], ["lost: no majority was well"])


@pytest.mark.parametrize("kind", ["lock", "read"])
@pytest.mark.parametrize(("over", "found"), [(900, False), (1_350, True)])
def test_a_lease_that_its_thread_lost_before_the_task_ran_is_not_compared_by_its_fence(
    kind: str, over: float, found: bool, story: Story
) -> None:
    story.event("one", 1_300, "blocked", s=BEGIN + 100 * MS)
    story.hold("two", 910, 920, fence=7)
    story.hold("one", 1_305, 1_400, asked=90, since=95, fence=6, lost=1_390, over=over, c=kind)
    assert ("fence" in story.findings()[0]) is found


def test_a_body_on_a_blocked_loop_may_notice_a_deletion_later(story: Story, tmp_path: Path) -> None:
    story.event("one", 1_900, "blocked", s=BEGIN + 900 * MS)
    story.hold("one", 10, 1_910, deadline=2_500, token="taken", lost=1_905)
    story.delete(1_000, "taken")
    assert story.findings() == ([], ["lost: its keys were deleted"])
    assert check(tmp_path)[1].notices == []


@pytest.mark.parametrize(
    ("blocks", "later", "found"),
    [
        (900, None, []),
        (900, "stall", []),
        (900, "ask", ["never noticed"]),
        (2_100, None, ["never noticed"]),
    ],
)
def test_a_body_that_is_killed_while_its_loop_is_blocked_may_notice_no_deletion(
    blocks: int, later: str | None, found: list[str], story: Story
) -> None:
    story.hold("one", 10, None, deadline=4_000, token="taken")
    story.event("one", blocks, "blocks", i=1)
    if later == "stall":
        story.event("one", 950, "stall", s=BEGIN + 910 * MS)
    if later == "ask":
        story.event("one", 950, "ask", n=["b"], w="with")
    story.delete(1_000, "taken")
    story.nemesis(2_700, "kill", p="one")
    assert story.findings()[0] == found
