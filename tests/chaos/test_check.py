"""The checker finds each broken promise in histories written by hand, and no other fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.check import check, main
from tests.chaos.story import BEGIN, MS, Story

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.once


def test_a_run_whose_holds_do_not_overlap_passes(story: Story) -> None:
    story.hold("one", 10, 20, plain=[(0, 1 << 40, 15)], fenced=[(0, 1 << 40, "done", 16)])
    story.hold(
        "two", 21, 30, plain=[(1 << 40, 2 << 40, 25)], fenced=[(1 << 40, 2 << 40, "done", 26)]
    )
    story.nemesis(9_000, "leftovers", n=0, keys=[])
    assert story.findings() == ([], [])


def test_two_valid_holds_at_once_are_an_overlap(story: Story) -> None:
    story.hold("one", 10, 20)
    story.hold("two", 19.9, 30)
    assert story.findings() == (["overlap"], [])


def test_three_holds_at_once_are_three_overlaps(story: Story) -> None:
    story.hold("one", 10, 50)
    story.hold("two", 11, 40)
    story.hold("one", 12, 30)
    assert story.findings() == (["overlap"] * 3, [])


def test_a_hold_ends_at_its_deadline_even_if_its_process_stands_still(story: Story) -> None:
    story.nemesis(100, "stop", p="one")
    story.nemesis(2_000, "cont", p="one")
    story.hold("one", 10, 2_000, deadline=1_490, lost=1_999)
    story.hold("two", 1_495, 1_600)
    assert story.findings() == ([], ["lost: its process stood still"])


def test_a_hold_ends_with_its_killed_process(story: Story) -> None:
    story.hold("one", 10, None)
    story.nemesis(100, "kill", p="one")
    story.hold("two", 1_600, 1_700)
    assert story.findings() == ([], [])
    story.hold("two", 90, 95)
    assert story.findings()[0] == ["overlap"]


def test_a_hold_that_never_ends_is_an_error(story: Story) -> None:
    story.hold("one", 10, None)
    assert story.findings() == (["error"], [])


def test_an_overlap_after_the_deletion_of_its_keys_is_not_promised(story: Story) -> None:
    story.hold("one", 10, 520, lost=505, token="taken")
    story.delete(500, "taken")
    story.hold("two", 502, 520)
    assert story.findings() == (
        [],
        ["two holders, the first one's keys were deleted", "lost: its keys were deleted"],
    )


@pytest.mark.parametrize(("well", "kinds"), [(400, ["lost needlessly"]), (1_000, [])])
def test_a_deletion_beside_a_node_that_had_no_key_leaves_no_majority(
    well: float, kinds: list[str], story: Story
) -> None:
    """The others may have been released by the holder itself, before the deletion came to them."""
    story.fault(20, 30, well, "refuse", 2)
    story.hold("one", 2_000, 2_520, lost=2_505, token="taken", deadline=4_000)
    story.delete(2_500, "taken", on=(0,))
    assert story.findings() == (kinds, [] if kinds else ["lost: its keys were deleted"])


@pytest.mark.parametrize(
    ("granted_without", "later", "kinds"),
    [((3,), (0, 1), []), ((3,), (0, 3), ["lost needlessly"]), ((), (0, 1), ["lost needlessly"])],
)
def test_a_lease_needs_the_majority_that_granted_it(
    tmp_path: Path, granted_without: tuple[int, ...], later: tuple[int, ...], kinds: list[str]
) -> None:
    """A renewal restores a missing key, but not on a node with a greater fence than its own."""
    story = Story(tmp_path, nodes=5)
    story.process("one", 1)
    if granted_without:
        story.fault(1_990, 2_100, 2_200, "stall", *granted_without)
    story.hold("one", 2_000, 6_000, lost=5_900, deadline=5_900)
    story.fault(5_000, 6_500, 7_000, "hang", *later)
    assert story.findings() == (
        kinds,
        [] if kinds else ["lost: granted without nodes, and then others were impaired"],
    )


def test_a_deletion_does_not_excuse_an_overlap_before_it(story: Story) -> None:
    story.hold("one", 10, 520, lost=505, token="taken")
    story.hold("two", 499, 520)
    story.delete(500, "taken")
    assert story.findings()[0] == ["overlap"]


def test_keys_may_be_gone_before_their_deleter_has_read_one_answer(story: Story) -> None:
    story.hold("one", 10, 520, lost=505, token="taken")
    story.hold("two", 499, 520)
    story.delete(500, "taken", asked=498)
    assert story.findings() == (
        [],
        ["two holders, the first one's keys were deleted", "lost: its keys were deleted"],
    )


def test_a_release_that_nodes_forgot_before_they_answered_it_is_no_needless_loss(
    story: Story,
) -> None:
    number = story.hold("one", 10, 20)
    story.fault(21, 22, 3_000, "flush", 1, 2)
    story.event("one", 40, "gone", i=number)
    assert story.findings() == ([], ["lost: no majority was well"])


def test_a_fence_below_an_earlier_one_is_found(story: Story) -> None:
    story.hold("one", 10, 20, fence=7)
    story.hold("two", 30, 40, fence=6)
    assert story.findings() == (["fence"], [])


def test_a_fence_given_twice_is_found(story: Story) -> None:
    story.hold("one", 10, 20, fence=7)
    story.hold("two", 30, 40, fence=7)
    assert story.findings() == (["fence"], [])


def test_a_hold_that_was_over_when_its_holder_had_it_may_have_an_older_fence(story: Story) -> None:
    story.hold("one", 100, 120, fence=7)
    story.hold("two", 200, 210, fence=6, deadline=199, asked=10)
    story.nemesis(20, "stop", p="two")
    story.nemesis(199.5, "cont", p="two")
    assert story.findings() == ([], [])


def test_a_lease_that_was_over_when_its_holder_had_it_is_found(story: Story) -> None:
    story.hold("one", 200, 210, deadline=199, asked=10)
    assert story.findings() == (["over before it began"], [])


@pytest.mark.parametrize(("left", "found"), [(1_500, []), (1_501, ["deadline too late"])])
def test_a_lease_that_promises_more_than_its_ttl_is_found(
    left: int, found: list[str], story: Story
) -> None:
    number = story.hold("one", 10, 1_200)
    story.event("one", 1_000, "held", i=number, d=BEGIN + (1_000 + left) * MS, v="3/3")
    assert story.findings() == (found, [])


@pytest.mark.parametrize(("wait", "found"), [(1.0, []), (20.0, ["gave up early"])])
def test_a_wait_that_ends_before_its_time_limit_is_found(
    wait: float, found: list[str], story: Story
) -> None:
    story.hold("two", 50, 1_400)
    story.event(
        "one",
        1_100,
        "fail",
        a=BEGIN + 100 * MS,
        n=["a"],
        w="with",
        why="AcquireTimeout",
        v="hhh",
        wait=wait,
    )
    assert story.findings() == (found, [] if found else ["not acquired: in line to the end"])


@pytest.mark.parametrize(("killed", "found"), [("one", []), ("two", ["key left behind"])])
def test_a_key_is_excused_only_by_the_end_of_its_own_process(
    killed: str, found: list[str], story: Story
) -> None:
    story.hold("one", 10, None if killed == "one" else 20, token="mine")
    story.nemesis(1_000, "kill", p=killed)
    story.nemesis(1_200, "leftovers", n=0, keys=[["a", 1_000, "mine"]])
    assert story.findings() == (found, [])


def test_two_fenced_writes_over_the_same_one_are_a_lost_update(story: Story) -> None:
    story.hold("one", 10, 20, fenced=[(0, 1 << 40, "done", 15)])
    story.hold("two", 30, 40, fenced=[(0, 2 << 40, "done", 35)])
    assert story.findings() == (["lost update, fenced"], [])


def test_a_write_with_an_unknown_result_loses_nothing(story: Story) -> None:
    story.hold("one", 10, 20, fenced=[(0, 1 << 40, "unsure", 15)])
    story.hold("two", 30, 40, fenced=[(0, 2 << 40, "done", 35)])
    assert story.findings() == ([], [])


def test_a_refused_write_of_a_holder_that_stood_still_loses_nothing(story: Story) -> None:
    story.nemesis(100, "stop", p="one")
    story.nemesis(2_000, "cont", p="one")
    story.hold(
        "one", 10, 2_010, deadline=1_490, lost=2_005, fenced=[(0, 1 << 40, "refused", 2_001)]
    )
    story.hold("two", 1_500, 1_600, fenced=[(0, 2 << 40, "done", 1_550)])
    assert story.findings() == ([], ["lost: its process stood still"])


def test_two_plain_writes_over_the_same_one_are_a_lost_update(story: Story) -> None:
    story.hold("one", 10, 20, plain=[(0, 1 << 40, 15)])
    story.hold("two", 30, 40, plain=[(0, 2 << 40, 35)])
    assert story.findings() == (["lost update, plain"], [])


def test_a_late_plain_write_after_a_pause_is_not_promised(story: Story) -> None:
    story.hold("one", 10, 2_001, plain=[(0, 1 << 40, 2_000)], lost=2_001)
    story.nemesis(100, "stop", p="one")
    story.nemesis(1_999, "cont", p="one")
    story.hold("two", 1_600, 1_700, plain=[(0, 2 << 40, 1_650)])
    assert story.findings() == (
        [],
        [
            "late write after a pause",
            "lost update, plain: a write came late after a pause",
            "lost: its process stood still",
        ],
    )


def test_a_late_write_without_a_pause_is_found(story: Story) -> None:
    story.hold("one", 10, 2_201, plain=[(0, 1 << 40, 2_200)], lost=2_201)
    assert story.findings() == (["late write", "noticed after its deadline", "lost needlessly"], [])


def test_a_value_without_a_write_is_found(story: Story) -> None:
    story.hold("one", 10, 20, plain=[(2 << 40 | 5, 1 << 40, 15)])
    assert story.findings() == (["register"], [])


def test_the_last_write_of_a_killed_process_need_not_be_known(story: Story) -> None:
    story.nemesis(5, "kill", p="two")
    story.hold("one", 10, 20, plain=[(2 << 40 | 5, 1 << 40, 15)])
    assert story.findings() == ([], [])


def test_a_holder_that_is_never_notified_of_its_loss_is_found(story: Story) -> None:
    story.hold("one", 10, 4_000, deadline=5_000, token="taken")
    story.delete(1_000, "taken")
    assert story.findings() == (["never noticed"], [])


@pytest.mark.parametrize(("ended", "found"), [(1_900, []), (2_100, ["never noticed"])])
def test_a_holder_notices_a_deletion_by_its_next_renewal_unless_it_has_ended(
    ended: int, found: list[str], story: Story, tmp_path: Path
) -> None:
    story.hold("one", 10, ended, deadline=5_000, token="taken")
    story.delete(1_000, "taken")
    assert story.findings() == (found, [])
    assert check(tmp_path)[1].ended_first == (not found)


def test_a_holder_that_stood_still_may_notice_a_deletion_later(story: Story) -> None:
    story.hold("one", 10, 2_300, deadline=5_000, token="taken")
    story.delete(1_000, "taken")
    story.nemesis(1_100, "stop", p="one")
    story.nemesis(2_200, "cont", p="one")
    assert story.findings() == ([], [])


@pytest.mark.parametrize("notified", [True, False])
def test_a_holder_that_is_notified_long_after_its_deadline_is_found(
    notified: bool, story: Story
) -> None:
    story.fault(600, 6_000, 6_500, "hang", 0, 1)
    story.hold("one", 10, 2_150, **({"lost": 2_145} if notified else {}))
    assert story.findings() == (
        ["noticed after its deadline"],
        ["lost: no majority was well"] if notified else [],
    )


def test_a_killed_holder_holds_until_the_last_deadline_that_it_recorded(story: Story) -> None:
    number = story.hold("one", 10, None)
    story.event("one", 1_000, "held", i=number, d=BEGIN + 2_480 * MS, v="3/3")
    story.nemesis(2_400, "kill", p="one")
    story.hold("two", 2_000, 2_100)
    assert story.findings() == (["overlap"], [])


@pytest.mark.parametrize(("computed", "found"), [(100, []), (300, ["error"])])
def test_a_client_that_blocks_its_own_loop_is_found(
    computed: int, found: list[str], story: Story
) -> None:
    story.event("one", 500, "stall", s=BEGIN + 100 * MS, c=computed * MS)
    assert story.findings() == (found, [])


@pytest.mark.parametrize(("fence", "found"), [(9, []), (5, ["refused without a reason"])])
def test_a_fence_is_refused_only_if_another_holder_had_a_greater_one(
    fence: int, found: list[str], story: Story
) -> None:
    story.hold("two", 10, 20, fence=fence)
    story.hold("one", 30, 60, fence=7, fenced=[(0, 0, "refused at the first read", 40)])
    assert [kind for kind in story.findings()[0] if kind != "fence"] == found


def test_a_deletion_after_a_late_write_is_not_its_reason(story: Story) -> None:
    story.hold("one", 0, 500, lost=400, token="x", plain=[(0, 1 << 40, 420)])
    story.hold("two", 430, 450, plain=[(0, 2 << 40, 440)])
    story.delete(460, "x")
    assert story.findings()[0] == ["late write", "lost needlessly"]


@pytest.mark.parametrize(("on", "again"), [((0, 1, 2), (0, 1)), ((0, 1), (0,)), ((0, 1, 2), (2,))])
def test_keys_that_were_set_again_were_no_loss(
    on: tuple[int, ...], again: tuple[int, ...], story: Story
) -> None:
    story.hold("one", 10, 4_000, deadline=5_000, token="taken")
    story.delete(1_000, "taken", again, on)
    assert story.findings() == ([], ["keys deleted one by one, set again"])


def test_time_from_deletion_to_notice_is_measured_by_age(story: Story, tmp_path: Path) -> None:
    story.hold("one", 0, 410, lost=403, token="old")
    story.delete(400, "old")
    story.hold("one", 500, 610, lost=560, token="young")
    story.delete(510, "young")
    story.findings()
    _, judgement = check(tmp_path)
    assert (judgement.notices, judgement.notices_young) == ([3 * MS], [50 * MS])


def test_a_missing_quorum_is_found_if_a_majority_was_well(story: Story) -> None:
    story.fault(50, 150, 200, "hang", 0)
    story.event(
        "one", 100, "fail", a=BEGIN + 90 * MS, n=["a"], w="try", why="QuorumUnreachable", v="guu"
    )
    assert story.findings() == (["not acquired"], [])


@pytest.mark.parametrize("end", [95, 99])
def test_a_missing_quorum_is_no_failure_if_no_majority_was_well(end: float, story: Story) -> None:
    story.fault(50, 80, end, "hang", 0, 1)
    story.event(
        "one", 100, "fail", a=BEGIN + 90 * MS, n=["a"], w="try", why="QuorumUnreachable", v="guu"
    )
    assert story.findings() == ([], [])


def test_two_faults_of_one_node_leave_a_majority(story: Story) -> None:
    story.fault(50, 80, 200, "hang", 0)
    story.fault(60, 80, 150, "cut", 0)
    story.event(
        "one", 100, "fail", a=BEGIN + 90 * MS, n=["a"], w="wait", why="AcquireTimeout", v="guu"
    )
    assert story.findings() == (["not acquired"], [])


def _waits_for_three_seconds(story: Story) -> None:
    story.event(
        "one", 3_100, "fail", a=BEGIN + 100 * MS, n=["a"], w="wait", why="AcquireTimeout", v="hhh"
    )


def test_a_wait_behind_other_holders_to_its_end_is_no_failure(story: Story) -> None:
    for got in (50, 1_050, 2_050):
        story.hold("two", got, got + 990)
    _waits_for_three_seconds(story)
    assert story.findings() == ([], ["not acquired: in line to the end"])


def test_a_waiter_beside_a_free_lock_was_forgotten(story: Story) -> None:
    for got in (50, 1_600):
        story.hold("two", got, got + 990)
    _waits_for_three_seconds(story)
    assert story.findings() == (["not acquired"], [])


def test_a_waiter_that_is_not_woken_by_the_end_of_a_long_hold_was_forgotten(
    story: Story,
) -> None:
    story.hold("two", 50, 9_600, deadline=9_700)
    story.event(
        "one", 9_900, "fail", a=BEGIN + 100 * MS, n=["a"], w="wait", why="AcquireTimeout", v="hhh"
    )
    assert story.findings() == (["not acquired"], [])


def test_a_waiter_that_many_others_pass_was_starved(story: Story) -> None:
    for number in range(30):
        story.hold("two", 101 + number * 100, 200 + number * 100)
    _waits_for_three_seconds(story)
    assert story.findings() == (["not acquired"], [])


def test_a_failure_of_a_process_that_stood_still_is_counted_apart(
    story: Story, tmp_path: Path
) -> None:
    story.event("one", 500, "stall", s=BEGIN + 100 * MS)
    story.event(
        "one", 501, "fail", a=BEGIN + 90 * MS, n=["a"], w="try", why="QuorumUnreachable", v="guu"
    )
    assert story.findings() == ([], [])
    assert check(tmp_path)[1].stood_still == 1


@pytest.mark.parametrize(
    ("resumed", "at", "kind", "found"),
    [
        (3_000, 3_500, "cut", []),
        (3_000, 3_500, "fill", ["not acquired"]),
        (3_000, 2_000, "cut", ["not acquired"]),
        (1_500, 3_500, "cut", ["not acquired"]),
    ],
)
def test_a_process_that_was_stopped_before_a_cut_may_reconnect_later(
    resumed: float, at: float, kind: str, found: list[str], story: Story, tmp_path: Path
) -> None:
    story.nemesis(resumed - 500, "stop", p="one")
    story.nemesis(resumed, "cont", p="one")
    story.fault(at, at + 10, at + 500, kind, 0)
    story.event(
        "one", 6_600, "fail", a=BEGIN + 6_590 * MS, n=["a"], w="try", why="QuorumUnreachable", v=""
    )
    assert story.findings() == (found, [])
    assert check(tmp_path)[1].stood_still == (not found)


@pytest.mark.parametrize("stopped", [False, True], ids=["by itself", "one of them by the nemesis"])
def test_a_failure_while_the_machine_stood_still_is_counted_apart(
    stopped: bool, story: Story, tmp_path: Path
) -> None:
    for number, name in enumerate(("three", "four", "five")):
        story.process(name, 3 + number)
        story.event(name, 480 + number, "stall", s=BEGIN + (100 + number) * MS)
    if stopped:
        story.nemesis(101, "stop", p="three")
        story.nemesis(480, "cont", p="three")
    story.event(
        "one", 501, "fail", a=BEGIN + 290 * MS, n=["a"], w="try", why="QuorumUnreachable", v="guu"
    )
    assert story.findings() == ((["not acquired"], []) if stopped else ([], []))
    assert check(tmp_path)[1].stood_still == (not stopped)


def test_finding_another_holder_is_an_answer(story: Story, tmp_path: Path) -> None:
    story.hold("two", 80, 95)
    story.event("one", 100, "fail", a=BEGIN + 90 * MS, n=["a"], w="try", why="held", v="")
    assert story.findings() == ([], [])
    assert check(tmp_path)[1].held_well == 1


@pytest.mark.parametrize(
    ("asked", "name", "killed", "found"),
    [
        (5_000, "a", 8_000, []),
        (3_000, "a", 3_200, []),
        (2_900, "a", 3_000, ["held by nobody"]),
        (5_000, "b", 8_000, ["held by nobody"]),
        (5_200, "a", 8_000, ["held by nobody"]),
    ],
)
def test_a_single_attempt_may_find_the_attempt_of_a_process_that_is_killed_amid_it(
    asked: float, name: str, killed: float, found: list[str], story: Story
) -> None:
    story.event("one", 5_100, "fail", a=BEGIN + 5_090 * MS, n=["a"], w="try", why="held", v="")
    story.event("two", asked, "ask", n=[name], w="with")
    story.nemesis(killed, "kill", p="two")
    assert story.findings() == (found, [])


@pytest.mark.parametrize("end", ["cut", "fail"])
def test_an_attempt_that_ended_before_its_process_was_killed_excuses_no_later_one(
    end: str, story: Story
) -> None:
    story.event("one", 5_100, "fail", a=BEGIN + 5_090 * MS, n=["a"], w="try", why="held", v="")
    story.event("two", 4_000, "ask", n=["a"], w="with")
    story.hold("one", 4_005, 4_010)
    story.event("two", 4_020, end, a=BEGIN + 4_000 * MS, n=["a"], w="try", why="held", v="")
    story.nemesis(5_200, "kill", p="two")
    assert story.findings() == (["held by nobody"], [])


@pytest.mark.parametrize(("at", "found"), [(4_000, []), (3_000, ["held by nobody"])])
@pytest.mark.parametrize("what", ["hold", "cut"])
def test_a_process_may_be_killed_before_it_has_released(
    what: str, at: float, found: list[str], story: Story
) -> None:
    if what == "hold":
        story.hold("two", at - 20, at)
    else:
        story.event("two", at, "cut", a=BEGIN + (at - 20) * MS, n=["a"], w="with")
    story.nemesis(at + 10, "kill", p="two")
    story.event("one", 5_100, "fail", a=BEGIN + 5_090 * MS, n=["a"], w="try", why="held", v="")
    assert story.findings() == (found, [])


def test_a_minimum_hold_may_end_after_the_kill_that_prevented_the_release(story: Story) -> None:
    story.hold("two", 4_000, 4_100, h=0.2)
    story.nemesis(4_150, "kill", p="two")
    story.event("one", 5_100, "fail", a=BEGIN + 5_090 * MS, n=["a"], w="try", why="held", v="")
    assert story.findings() == ([], [])


@pytest.mark.parametrize(("at", "found"), [(3_990, []), (4_700, ["held by nobody"])])
def test_a_killed_holder_may_have_renewed_after_its_last_line(
    at: float, found: list[str], story: Story
) -> None:
    story.hold("two", 2_000, None, deadline=3_480)
    story.nemesis(2_499, "kill", p="two")
    story.event("one", at, "fail", a=BEGIN + int((at - 5) * MS), n=["a"], w="try", why="held", v="")
    assert story.findings() == (found, [])


def test_a_process_that_is_killed_amid_an_attempt_may_leave_a_key_with_a_minimum_hold(
    story: Story,
) -> None:
    story.event("two", 4_000, "ask", n=["a"], w="try", h=0.9)
    story.nemesis(4_010, "kill", p="two")
    story.nemesis(4_100, "look", n=0, keys=[["a", 1_490, "abc"]])
    assert story.findings() == ([], [])


def test_an_attempt_must_be_answered_in_time_even_if_its_process_is_killed_later(
    story: Story,
) -> None:
    story.event("two", 100, "ask", n=["a"], w="try")
    story.nemesis(9_000, "kill", p="two")
    assert story.findings() == (["no answer"], [])


def test_an_attempt_without_an_answer_is_an_error_unless_its_process_was_killed(
    story: Story,
) -> None:
    story.event("two", 100, "ask", n=["a"], w="try")
    assert story.findings() == (["error"], [])


def test_two_single_attempts_may_find_each_other(story: Story) -> None:
    for process in ("one", "two"):
        story.event(process, 100, "fail", a=BEGIN + 90 * MS, n=["a"], w="try", why="held", v="")
    assert story.findings() == ([], [])


def test_an_unknown_holder_is_no_answer(story: Story) -> None:
    story.hold("two", 10, 20)
    story.event("one", 5_100, "fail", a=BEGIN + 5_090 * MS, n=["a"], w="try", why="held", v="")
    assert story.findings() == (["held by nobody"], [])


def test_nodes_that_forget_soon_after_each_other_are_a_reason_for_a_loss(story: Story) -> None:
    story.fault(1_900, 2_000, 2_020, "flush", 0)
    story.fault(2_030, 2_040, 2_050, "hang", 1)
    story.hold("one", 2_010, 2_200, lost=2_150)
    assert story.findings() == ([], ["lost: nodes forgot, one soon after the other"])


@pytest.mark.parametrize(("votes", "found"), [("5/5", ["lost needlessly"]), ("4/5", [])])
def test_nodes_that_forget_are_a_reason_for_a_loss_if_they_were_needed(
    tmp_path: Path, votes: str, found: list[str]
) -> None:
    story = Story(tmp_path, nodes=5)
    story.process("one", 1)
    number = story.hold("one", 1_000, 2_200, lost=2_150, votes="3/5")
    story.event("one", 1_500, "held", i=number, d=BEGIN + 2_480 * MS, v=votes)
    story.fault(1_900, 2_000, 2_020, "flush", 0)
    story.fault(2_030, 2_040, 2_050, "hang", 1)
    assert story.findings()[0] == found


@pytest.mark.parametrize(
    ("votes", "then", "rival", "kinds"),
    [
        ("3/5", "3/5", 999.5, []),
        ("4/5", "4/5", 999.5, ["lost needlessly"]),
        ("3/5", "5/5", 999.5, ["lost needlessly"]),
        ("3/5", "3/5", 1_400, ["lost needlessly"]),
    ],
    ids=["bare majority", "a node to spare", "repaired since", "no rival"],
)
def test_a_rival_of_the_same_moment_is_a_reason_for_a_loss_if_its_fence_kept_nodes(
    tmp_path: Path, votes: str, then: str, rival: float, kinds: list[str]
) -> None:
    story = Story(tmp_path, nodes=5)
    story.process("one", 1)
    story.process("two", 2)
    number = story.hold("one", 1_000, 2_900, lost=2_850, votes=votes, asked=999, deadline=2_980)
    story.event(
        "two", rival + 1, "fail", a=BEGIN + int(rival * MS), n=["a"], w="try", why="held", v=""
    )
    story.event("one", 1_500, "held", i=number, d=BEGIN + 2_980 * MS, v=then)
    story.fault(1_600, 2_990, 3_000, "stall", 0)
    found = ["lost: a rival's fence kept nodes from it, and then others were impaired"]
    assert story.findings() == (kinds, [] if kinds else found)


def test_a_pause_long_before_a_loss_is_no_reason_for_it(story: Story) -> None:
    story.event("one", 2_300, "stall", s=BEGIN + 2_100 * MS)
    story.hold("one", 2_000, 6_200, lost=6_150, deadline=6_200)
    assert story.findings() == (["lost needlessly"], [])


@pytest.mark.parametrize(("on", "counts"), [((0, 1, 2), [1, 0, 0]), ((0,), [1])])
def test_a_deletion_that_left_a_majority_excuses_nothing(
    on: tuple[int, ...], counts: list[int], story: Story
) -> None:
    story.hold("one", 0, 500, lost=400, token="x")
    story.nemesis(
        100,
        "delete",
        name="a",
        k="x",
        a=BEGIN + 100 * MS,
        s=BEGIN + 100 * MS,
        n=on,
        c=counts,
        again=(),
    )
    assert story.findings() == (["lost needlessly"], [])


def test_a_deletion_after_a_loss_is_not_its_reason(story: Story) -> None:
    story.hold("one", 0, 500, lost=400, token="x")
    story.delete(450, "x")
    assert story.findings()[0] == ["lost needlessly"]


@pytest.mark.parametrize("what", ["fail", "cut"])
def test_a_waiter_without_an_answer_at_the_end_of_its_patience_was_forgotten(
    what: str, story: Story
) -> None:
    story.hold("two", 800, 1_000)
    story.event("one", 23_000, what, a=BEGIN + 900 * MS, n=["a"], w="with", why="held", v="")
    assert story.findings() == (["no answer"], [])


@pytest.mark.parametrize(("took", "found"), [(1_900, []), (2_100, ["no answer"])])
@pytest.mark.parametrize("what", ["fail", "cut", "got"])
def test_single_attempts_and_abandoned_attempts_have_no_patience(
    took: int, found: list[str], what: str, story: Story
) -> None:
    story.hold("two", 100, 200)
    if what == "got":
        story.hold("one", 150 + took, 160 + took, asked=150, how="try")
    else:
        ways: dict[str, dict[str, Any]] = {
            "fail": {"w": "try", "why": "held", "v": ""},
            "cut": {"w": "with", "g": 0.0},
        }
        story.event("one", 150 + took, what, a=BEGIN + 150 * MS, n=["a"], **ways[what])
    assert story.findings() == (found, [])


def test_a_fenced_read_of_a_value_without_a_write_is_found(story: Story) -> None:
    story.hold("one", 10, 100, fenced=[(77, 78, "done", 50)])
    assert story.findings()[0] == ["register"]


@pytest.mark.parametrize(("took", "found"), [(10, []), (60, ["noticed late"])])
def test_holders_are_notified_by_the_servers_and_not_by_their_renewals(
    took: int, found: list[str], story: Story
) -> None:
    for number in range(20):
        at = number * 400
        story.hold("one", at, at + 300 + took, lost=at + 200 + took, token=f"x{number}")
        story.delete(at + 200, f"x{number}")
    assert story.findings()[0] == found


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (("hang", 0), None),
        (("flush", 0), None),
        (("kill", 0), None),
        (("hang", 0, 1), "lost: no majority was well"),
    ],
)
def test_a_loss_needs_a_reason(fault: tuple[Any, ...], reason: str | None, story: Story) -> None:
    story.fault(1_900, 2_000, 2_100, *fault)
    story.hold("one", 2_010, 2_200, lost=2_150)
    assert story.findings() == ((["lost needlessly"], []) if reason is None else ([], [reason]))


def test_a_key_left_behind_is_found(story: Story) -> None:
    story.nemesis(9_000, "leftovers", n=0, keys=[["a", 900, "token"]])
    assert story.findings() == (["key left behind"], [])


def test_an_endless_key_is_found(story: Story) -> None:
    story.nemesis(9_000, "look", n=0, keys=[["a", -1, "token"]], of=1)
    assert story.findings() == (["endless key"], [])


def test_an_unexpected_error_is_found(story: Story) -> None:
    story.event("one", 100, "error", why="KeyError", where="there")
    story.nemesis(200, "stuck", p="two", status=0)
    assert story.findings() == (["error", "error"], [])


def test_the_torn_line_of_a_killed_process_is_no_line(story: Story, tmp_path: Path) -> None:
    story.hold("one", 10, 20)
    story.findings()
    with (tmp_path / "one.jsonl").open("a") as file:
        file.write('{"t":1000000')
    assert check(tmp_path)[1].violations == []


def test_the_exit_status_is_1_after_a_violation(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story.hold("one", 10, 20)
    story.findings()
    assert main([str(tmp_path)]) == 0
    story.hold("two", 15, 30)
    story.findings()
    assert main([str(tmp_path)]) == 1
    assert "a: one#1 and two#1 for 5.0 ms" in capsys.readouterr().out


def test_the_figures_go_into_a_page(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- chaos:begin -->\nold\n<!-- chaos:end -->\nafter\n")
    story.hold("one", 10, 20)
    story.findings()
    assert main([str(tmp_path), "--page", str(page)]) == 0
    report = capsys.readouterr().out
    assert page.read_text() == f"before\n<!-- chaos:begin -->\n{report}<!-- chaos:end -->\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="chaos:begin"):
        main([str(tmp_path), "--page", str(page)])
