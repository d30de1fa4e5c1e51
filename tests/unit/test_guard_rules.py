"""What is done about each kind of marker, as a full table; and what markers say."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core.guard import FRESH, NO_RUN_ID, Reading, Step, Trust, next_steps, read_marker, vouching

MINE = b"a" * 40
OTHER = b"b" * 40
GUARD = 60_000
NOW = 100.0


def reading(trust: Trust, *, guard: int = GUARD, left: float = 30.0, at: float = NOW) -> Reading:
    return Reading(trust, b"marker", MINE, guard, int(left * 1000), 0, at, at)


def step(node: Reading, *others: Reading | None, strict: bool = False) -> Step | None:
    return next_steps([node, *others], GUARD, NOW, strict=strict)[0]


@pytest.mark.parametrize(
    ("marker", "trust"),
    [
        (b"", Trust.NONE),
        (MINE + b":60000", Trust.TRUSTED),
        (MINE + b":60000:5000", Trust.WAITING),
        (MINE + b":60000:5000:n0nce", Trust.FOUNDING),
        (OTHER + b":60000", Trust.FOREIGN),
        (OTHER + b":60000:5000", Trust.FOREIGN),
        (OTHER + b":60000:5000:n0nce", Trust.FOREIGN),
        (b"rubbish", Trust.FOREIGN),
        (MINE + b":soon", Trust.FOREIGN),
        (MINE + b":1:2:3:4", Trust.FOREIGN),
    ],
)
def test_a_marker_is_read_for_the_process_that_is_there(marker: bytes, trust: Trust) -> None:
    assert read_marker(marker, 4000, MINE + b":1", NOW, NOW).trust is trust


@pytest.mark.parametrize("named", [MINE, OTHER, NO_RUN_ID])
def test_who_may_not_know_which_process_it_is_takes_the_markers_word_and_goes_on_naming_it(named: bytes) -> None:
    read = read_marker(named + b":60000", 4000, NO_RUN_ID + b":1", NOW, NOW)
    assert (read.trust, read.run_id) == (Trust.TRUSTED, named)
    assert read_marker(named + b":60000:5000", 4000, NO_RUN_ID + b":1", NOW, NOW).trust is Trust.WAITING
    assert read_marker(b"rubbish", 4000, NO_RUN_ID + b":1", NOW, NOW).run_id == NO_RUN_ID


def test_a_marker_that_names_no_process_is_a_foreign_one_for_who_knows_it() -> None:
    assert read_marker(NO_RUN_ID + b":60000", 4000, MINE + b":1", NOW, NOW).trust is Trust.FOREIGN


@given(st.binary(max_size=80))
def test_only_a_marker_of_this_process_is_ever_trusted(marker: bytes) -> None:
    read = read_marker(marker, 0, MINE + b":1", NOW, NOW)
    assert read.trust is not Trust.TRUSTED or marker.startswith(MINE + b":")


def test_what_is_left_is_told_by_the_nodes_time_and_ours() -> None:
    read = read_marker(MINE + b":60000:5000", 4000, MINE + b":1", NOW, NOW)
    assert read.left(NOW) == 1.0
    assert read.left(NOW + 0.4) == pytest.approx(0.6)
    assert read.left(NOW + 5) == 0.0


def test_a_late_answer_shortens_nobodys_quarantine() -> None:
    read = read_marker(MINE + b":60000:6500", 4000, MINE + b":1", at=NOW, answered=NOW + 3)
    assert read.left(NOW + 3) == 2.5
    assert step(read) is None


ANY = [None, *(reading(trust) for trust in Trust)]


@pytest.mark.parametrize("strict", [False, True])
def test_a_foreign_marker_always_waits(strict: bool) -> None:
    for others in product(ANY, ANY):
        assert step(reading(Trust.FOREIGN), *others, strict=strict) == Step(Trust.WAITING, GUARD)


def test_a_missing_marker_founds_only_where_no_node_is_trusted() -> None:
    for others in product(ANY, ANY):
        knows = any(other is not None and other.trust is Trust.TRUSTED for other in others)
        assert step(reading(Trust.NONE), *others) == Step(Trust.WAITING if knows else Trust.FOUNDING, GUARD)
        assert step(reading(Trust.NONE), *others, strict=True) == Step(Trust.WAITING, GUARD)


def test_only_a_set_that_founds_as_a_whole_is_promoted() -> None:
    founding = reading(Trust.FOUNDING)
    for others in product(ANY, ANY):
        whole = all(other is not None and other.trust is Trust.FOUNDING for other in others)
        assert step(founding, *others) == (Step(Trust.TRUSTED, GUARD) if whole else None)
        assert step(founding, *others, strict=True) is None


def test_founding_must_have_been_read_within_a_second() -> None:
    fresh, stale = reading(Trust.FOUNDING, at=NOW - FRESH), reading(Trust.FOUNDING, at=NOW - FRESH - 0.001)
    assert step(fresh, fresh) == Step(Trust.TRUSTED, GUARD)
    assert step(fresh, stale) is None
    assert step(stale, fresh) is None


@pytest.mark.parametrize("trust", [Trust.WAITING, Trust.FOUNDING])
def test_who_has_waited_is_trusted(trust: Trust) -> None:
    assert step(reading(trust, left=0.0), None, reading(Trust.TRUSTED)) == Step(Trust.TRUSTED, GUARD)
    assert step(reading(trust, left=0.001), None, reading(Trust.TRUSTED)) is None


def test_a_shorter_guard_time_is_raised_before_we_vote() -> None:
    short = GUARD - 1
    assert step(reading(Trust.TRUSTED, guard=short)) == Step(Trust.TRUSTED, GUARD)
    assert step(reading(Trust.TRUSTED, guard=GUARD + 1)) is None
    assert step(reading(Trust.WAITING, guard=short)) == Step(Trust.WAITING, GUARD)
    assert step(reading(Trust.FOUNDING, guard=short), reading(Trust.TRUSTED)) is None, "its promotion may be on its way"
    assert step(reading(Trust.FOUNDING, guard=short, left=0.0), reading(Trust.TRUSTED)) == Step(Trust.WAITING, GUARD)
    assert step(reading(Trust.FOUNDING, guard=short), reading(Trust.FOUNDING)) == Step(Trust.TRUSTED, GUARD)


def test_the_longest_guard_time_that_any_node_names_holds() -> None:
    longer = reading(Trust.TRUSTED, guard=GUARD + 5)
    assert step(reading(Trust.NONE), longer) == Step(Trust.WAITING, GUARD + 5)
    assert step(reading(Trust.FOREIGN), longer) == Step(Trust.WAITING, GUARD + 5)


def test_a_process_is_named_by_forty_characters() -> None:
    assert vouching("a" * 40) == MINE
    assert vouching("") == NO_RUN_ID
    for odd in ("short", "x:" * 20, "a" * 64):
        assert len(vouching(odd)) == 40
        assert vouching(odd).isalnum()
