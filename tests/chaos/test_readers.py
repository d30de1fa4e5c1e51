"""The rules of read-write locks, on histories written by hand.

Each rule is broken once, and kept once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.check import check

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.story import Story

pytestmark = pytest.mark.once

FIRST, SECOND = 1 << 40, (1 << 40) + 1
"""The ids of two writes of the process "one"."""


def test_readers_may_overlap_and_share_a_fence(story: Story) -> None:
    story.hold("one", 10, 20, c="write", fence=5)
    story.hold("one", 30, 60, c="read", fence=5)
    story.hold("two", 40, 50, c="read", fence=5)
    story.hold("two", 70, 80, c="write", fence=6)
    assert story.findings() == ([], [])


@pytest.mark.parametrize("kinds", [("read", "write"), ("write", "read"), ("read", "lock")])
def test_a_reader_beside_a_writer_is_an_overlap(kinds: tuple[str, str], story: Story) -> None:
    story.hold("one", 10, 50, c=kinds[0], fence=5)
    story.hold("two", 20, 60, c=kinds[1], fence=6)
    assert story.findings() == (["overlap"], [])


def test_a_reader_below_the_last_writer_is_found(story: Story) -> None:
    story.hold("one", 10, 20, c="write", fence=5)
    story.hold("two", 30, 40, c="read", fence=4)
    assert story.findings() == (["fence"], [])


def test_a_writer_that_does_not_rise_above_a_reader_is_found(story: Story) -> None:
    story.hold("one", 10, 20, c="read", fence=5)
    story.hold("two", 30, 40, c="write", fence=5)
    assert story.findings() == (["fence"], [])


@pytest.mark.parametrize(("got", "found"), [(29, ["overlap"]), (31, [])])
def test_readers_are_beside_a_writer_only_after_its_downgrade(
    got: float, found: list[str], story: Story
) -> None:
    story.hold("one", 10, 50, c="write", fence=5, down=30)
    story.hold("two", got, 60, c="read", fence=5)
    assert story.findings() == (found, [])


def test_a_writer_beside_a_downgraded_one_is_an_overlap(story: Story) -> None:
    story.hold("one", 10, 50, c="write", fence=5, down=30)
    story.hold("two", 40, 60, c="write", fence=6)
    assert story.findings() == (["overlap"], [])


def test_a_writer_that_does_not_rise_above_a_downgraded_one_is_found(story: Story) -> None:
    story.hold("one", 10, 20, c="write", fence=5, down=15, read_fence=9)
    story.hold("two", 30, 40, c="write", fence=9)
    assert story.findings() == (["fence"], [])


def test_a_fence_that_falls_by_a_downgrade_is_found(story: Story) -> None:
    story.hold("one", 10, 20, c="write", fence=5, down=15, read_fence=4)
    assert story.findings() == (["fence"], [])


@pytest.mark.parametrize(("begins", "kept"), [(490, True), (1_600, False)])
def test_a_shared_grant_whose_entry_was_deleted_is_known_by_its_first_lease(
    begins: float, kept: bool, story: Story
) -> None:
    story.hold("one", begins, 3_000, c="read", token="taken", fence=5, lost=1_950, deadline=3_400)
    story.delete(1_500, "taken")
    story.hold("two", 1_550, 1_700, c="write", fence=6)
    story.hold("one", 1_650, 3_000, c="read", token="taken", fence=5, lost=1_950, deadline=3_400)
    assert ("overlap" not in story.findings()[0]) is kept


@pytest.mark.parametrize("way", ["plain", "fenced"])
@pytest.mark.parametrize(("until", "found"), [(60, ["changed under a reader"]), (54, [])])
def test_a_register_that_changes_under_a_reader_is_found(
    way: str, until: float, found: list[str], story: Story
) -> None:
    """The recorded lease of the writer is over before its write. Only the register shows it."""
    story.hold("one", 10, 20, c="write", fence=5, **written(way, 0, FIRST, 15))
    story.hold("two", 30, 70, c="read", fence=6, deadline=until, reads=[(way, FIRST, SECOND, 55)])
    story.hold("one", 71, 80, c="write", fence=7, **written(way, FIRST, SECOND, 75))
    assert story.findings() == (found, [])


def written(way: str, before: int, value: int, at: float) -> dict[str, Any]:
    if way == "plain":
        return {"plain": [(before, value, at)]}
    return {"fenced": [(before, value, "done", at)]}


@pytest.mark.parametrize(
    ("way", "fence", "found"), [("plain", 5, False), ("fenced", 5, True), ("fenced", 6, False)]
)
def test_a_late_write_may_change_only_a_register_that_cannot_refuse_it(
    way: str, fence: int, found: bool, story: Story
) -> None:
    story.nemesis(20, "stop", p="one")
    story.nemesis(1_650, "cont", p="one")
    story.hold(
        "one",
        10,
        1_700,
        c="write",
        fence=fence,
        deadline=1_490,
        lost=1_690,
        **written(way, 0, FIRST, 1_660),
    )
    story.hold("two", 1_600, 1_680, c="read", fence=6, reads=[(way, 0, FIRST, 1_670)])
    violations, beyond = story.findings()
    assert ("changed under a reader" in violations) is found
    assert ("changed under a reader by a late write" in beyond) is not found


def test_a_register_may_change_under_a_reader_whose_keys_were_deleted(story: Story) -> None:
    story.hold(
        "two", 10, 900, c="read", fence=5, token="taken", lost=800, reads=[("plain", 0, FIRST, 750)]
    )
    story.delete(500, "taken")
    story.hold("one", 600, 700, c="write", fence=6, **written("plain", 0, FIRST, 650))
    violations, beyond = story.findings()
    assert violations == []
    assert "changed under a reader, keys were deleted" in beyond


def test_a_downgraded_writer_that_does_not_find_its_own_write_is_found(story: Story) -> None:
    story.hold(
        "one",
        10,
        50,
        c="write",
        fence=5,
        down=20,
        **written("plain", 0, FIRST, 15),
        reads=[("plain", FIRST, 0, 40)],
    )
    assert story.findings() == (["changed under a reader"], [])


def test_a_reader_that_finds_a_value_without_a_write_is_found(story: Story) -> None:
    story.hold("two", 10, 50, c="read", fence=5, reads=[("plain", SECOND, SECOND, 40)])
    assert set(story.findings()[0]) == {"register"}


def test_the_write_of_a_killed_process_may_show_under_a_reader(story: Story) -> None:
    story.nemesis(5, "kill", p="one")
    story.hold("two", 10, 50, c="read", fence=5, reads=[("plain", 0, FIRST, 40)])
    assert story.findings() == ([], [])


@pytest.mark.parametrize(("lost", "found"), [(1_950, []), (2_050, ["noticed late"])])
def test_a_reader_notices_a_deletion_by_its_next_renewal(
    lost: float, found: list[str], story: Story, tmp_path: Path
) -> None:
    """The limit is a third of the ttl and half a second: 1 s."""
    for _ in range(2):
        story.hold("one", 500, 2_100, c="read", fence=5, token="taken", lost=lost, deadline=2_400)
    story.delete(1_000, "taken")
    assert story.findings()[0] == found * 2
    assert len(check(tmp_path)[1].notices_readers) == 2


def waits(story: Story, kind: str) -> None:
    story.nemesis(0, "begin", nodes=3, ttl=1.5)
    story.hold("one", 5_000, 5_010, c=kind, asked=100, fence=10**6)


def grants(story: Story, kind: str, times: int, asked: float | None = None) -> None:
    for number in range(times):
        at = 1_100 + 20 * number
        fence = 10 + number if kind == "write" else 9
        story.hold(
            "two",
            at,
            at + 5,
            c=kind,
            asked=asked or at - 1,
            token=f"two-{kind}-{number}",
            fence=fence,
        )


@pytest.mark.parametrize(("times", "found"), [(10, []), (11, ["reader passed"])])
@pytest.mark.parametrize("asked", [None, 50.0])
def test_a_reader_that_waits_through_many_writers_is_found(
    asked: float | None, times: int, found: list[str], story: Story
) -> None:
    grants(story, "write", times, asked)
    waits(story, "read")
    assert story.findings() == (found, [])


@pytest.mark.parametrize(("times", "found"), [(9, []), (10, ["writer passed"])])
def test_a_writer_that_readers_pass_again_and_again_is_found(
    times: int, found: list[str], story: Story
) -> None:
    grants(story, "read", times)
    waits(story, "write")
    assert story.findings() == (found, [])


def test_readers_pass_a_waiting_writer_once_for_each_writer_before_it(story: Story) -> None:
    for number in range(15):
        at = 1_100 + 40 * number
        story.hold(
            "two", at, at + 5, c="read", asked=at - 1, token=f"two-{number}", fence=2 * number + 1
        )
        story.hold(
            "two",
            at + 10,
            at + 15,
            c="write",
            asked=90,
            token=f"two-w{number}",
            fence=2 * number + 2,
        )
    waits(story, "write")
    assert story.findings() == ([], [])


def test_readers_of_one_grant_pass_a_writer_once(story: Story) -> None:
    for number in range(30):
        at = 1_100 + 10 * number
        story.hold("two", at, at + 5, c="read", asked=at - 1, token="same", fence=9)
    waits(story, "write")
    assert story.findings() == ([], [])


@pytest.mark.parametrize("left", [900, -1])
def test_an_entry_of_a_reader_that_rests_is_a_key_left_behind(left: int, story: Story) -> None:
    story.hold("one", 8_900, 8_910, c="read", token="mine")
    story.nemesis(9_000, "leftovers", n=0, keys=[["a", left, "mine"]])
    assert story.findings() == (["key left behind"], [])
