"""The checker's rule about hand-overs between processes, on histories written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.chaos.story import Story


def _hand_overs(story: Story, *took: float, waited: float = 150, **more: Any) -> None:
    """Let two processes hand a lock to each other, in so many milliseconds each time."""
    at, holder, other = 100.0, "one", "two"
    story.hold(holder, at, at + 200, **more)
    for each in took:
        released = at + 200
        at, holder, other = released + each, other, holder
        story.hold(holder, at, at + 200, asked=released - waited, **more)


def test_waiters_that_are_woken_late_again_and_again_are_found(story: Story) -> None:
    _hand_overs(story, *[5] * 180, *[110] * 21)
    assert story.findings() == (["woken late"], [])


def test_a_tenth_of_the_hand_overs_may_be_late(story: Story) -> None:
    _hand_overs(story, *[5] * 180, *[110] * 20)
    assert story.findings() == ([], [])


def test_a_few_hand_overs_show_nothing(story: Story) -> None:
    _hand_overs(story, *[110] * 199)
    assert story.findings() == ([], [])


def test_the_rule_counts_only_processes_that_had_waited_in_the_queue(story: Story) -> None:
    _hand_overs(story, *[110] * 225, waited=90)
    assert story.findings() == ([], [])


def test_the_rule_counts_no_locks_that_are_kept_after_their_release(story: Story) -> None:
    _hand_overs(story, *[110] * 225, h=0.25)
    assert story.findings() == ([], [])


def test_the_rule_counts_no_hand_over_without_a_majority(story: Story) -> None:
    _hand_overs(story, *[110] * 225)
    story.fault(50, 9_000, 9_500, "hang", 0, 1)
    assert story.findings() == ([], [])


def test_the_rule_counts_no_hand_over_to_a_process_that_stood_still(story: Story) -> None:
    _hand_overs(story, *[110] * 225)
    story.nemesis(50, "stop", p="two")
    story.nemesis(9_000, "cont", p="two")
    assert "woken late" not in story.findings()[0]
