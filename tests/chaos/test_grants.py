"""The rules of what holders report of their grants, on histories written by hand.

Each rule is broken once, and kept once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.story import Story

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.once


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_token_of_another_process_is_found(name: str, story: Story) -> None:
    story.hold("one", 10, 20, token="same")
    story.hold("two", 30, 40, token="same", name=name)
    assert story.findings() == (["token of another grant"], [])


def test_a_token_that_one_process_uses_for_two_names_is_found(story: Story) -> None:
    story.hold("one", 10, 20, token="same")
    story.hold("one", 30, 40, token="same", name="b")
    assert story.findings() == (["token of another grant"], [])


@pytest.mark.parametrize("kind", ["lock", "read"])
def test_leases_of_one_process_may_have_the_same_token(kind: str, story: Story) -> None:
    story.hold("one", 10, 20, token="same", c=kind)
    story.hold("one", 30, 40, token="same", c=kind)
    story.hold("two", 50, 60, token="other", c=kind)
    assert story.findings() == ([], [])


@pytest.mark.parametrize(
    ("votes", "found"),
    [
        ("0/3", ["granted by a minority"]),
        ("1/3", ["granted by a minority"]),
        ("2/3", []),
        ("", []),
    ],
)
def test_a_grant_by_less_than_a_majority_is_found(
    votes: str, found: list[str], story: Story
) -> None:
    story.hold("one", 10, 20, votes=votes)
    assert story.findings() == (found, [])


def test_a_majority_of_five_nodes_is_three(tmp_path: Path) -> None:
    story = Story(tmp_path, nodes=5)
    story.process("one", 1)
    story.hold("one", 10, 20, votes="2/5")
    story.hold("one", 30, 40, votes="3/5")
    assert story.findings() == (["granted by a minority"], [])


def test_nodes_may_confirm_a_lease_no_more_after_its_grant(story: Story) -> None:
    number = story.hold("one", 10, 500, votes="3/3")
    story.event("one", 260, "held", i=number, d=None, v="1/3")
    assert story.findings() == ([], [])


@pytest.mark.parametrize(("went_on", "found"), [(50, ["granted by a minority"]), (500, [])])
def test_a_holder_that_stood_still_after_its_grant_may_report_fewer_nodes(
    went_on: float, found: list[str], story: Story
) -> None:
    story.nemesis(20, "stop", p="one")
    story.nemesis(went_on, "cont", p="one")
    story.hold("one", 510, 520, since=400, votes="1/3")
    assert story.findings() == (found, [])


def test_a_lease_of_ours_without_a_fence_is_found(story: Story) -> None:
    story.hold("one", 10, 20, fence=None)
    assert story.findings() == (["no fence"], [])


def test_a_downgraded_lease_without_a_fence_is_found(story: Story) -> None:
    story.hold("one", 10, 20, c="write", fence=5, down=15, read_fence=None)
    assert story.findings() == (["no fence"], [])


def test_a_writer_that_is_killed_in_its_downgrade_reports_no_second_fence(story: Story) -> None:
    number = story.hold("one", 10, None, c="write", fence=5)
    story.event("one", 15, "down", i=number)
    story.nemesis(16, "kill", p="one")
    assert story.findings() == ([], [])


def test_other_libraries_need_no_fence(story: Story) -> None:
    story.process("three", 3, kind="redis_py")
    story.hold("three", 10, 20, fence=None)
    assert story.findings() == ([], [])
