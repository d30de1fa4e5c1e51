"""When a process stands back, and for how long: each rule of `_core/turns.py` by numbers."""

from __future__ import annotations

from math import ceil

import pytest

from aioredlock_ng._core.backoff import WAKE_CAP
from aioredlock_ng._core.turns import (
    FIRST_BOUND,
    FIRST_IN_VAIN,
    LAST_BOUND,
    LONGEST_PAUSE,
    LONGEST_REST,
    MEMORY,
    OUTRUN,
    STAND_BACK,
    Turns,
)


def run(turns: Turns, begin: float, holds: int, *, hold: float, trip: float) -> tuple[float, float]:
    """So many holds, each asked for in the instant of the release before; the pause after the last, and when it began."""
    asked, pause = begin, 0.0
    for _ in range(holds):
        assert pause == 0.0, "it stood back before"
        got = asked + trip
        turns.granted(got, asked)
        asked = got + hold
        pause = turns.freed(asked)
    return pause, asked


@pytest.mark.parametrize(
    ("hold", "trip", "holds", "pause"),
    [
        (0.0, 0.0003, 2, 0.0),
        (0.0, 0.0003, 108, STAND_BACK),
        (0.005, 0.0003, 7, STAND_BACK),
        (0.2, 0.0003, 1, STAND_BACK),
        (0.5, 0.0003, 1, 0.0025),
        (3.0, 0.0003, 1, LONGEST_REST),
        (0.0, 0.010, 5, 0.011),
        (3.0, 0.080, 1, 0.081),
        (3.0, 2.0, 1, LONGEST_PAUSE),
    ],
)
def test_the_pause_covers_a_round_trip_and_a_share_of_a_long_run(hold: float, trip: float, holds: int, pause: float) -> None:
    assert run(Turns(), 100.0, holds, hold=hold, trip=trip)[0] == pytest.approx(pause)


def test_one_slow_attempt_does_not_lengthen_the_pause_of_its_run() -> None:
    turns = Turns()
    turns.granted(100.0003, 100.0)
    assert turns.freed(100.0003) == 0.0
    turns.granted(100.1003, 100.0003)
    assert turns.freed(100.1003) == pytest.approx(STAND_BACK)


@pytest.mark.parametrize(
    ("trip", "gap", "stands_back"),
    [
        (0.0, 0.0, True),
        (0.0, STAND_BACK / 2, True),
        (0.0, 2 * STAND_BACK, False),
        # Others hear of the release one way after it was executed, and have to ask.
        (0.02, 0.0, True),
        (0.02, 0.02, True),
        (0.02, 0.03, False),
    ],
)
def test_a_gap_in_which_others_can_ask_ends_a_run_and_a_long_round_trip_does_not(
    trip: float, gap: float, stands_back: bool
) -> None:
    turns = Turns()
    hold = FIRST_BOUND * 0.6
    now = 100.0 + trip
    turns.granted(now, 100.0)
    assert turns.freed(now + hold) == 0.0
    asked = now + hold + gap
    turns.granted(asked + trip, asked)
    assert (turns.freed(asked + trip + hold) > 0.0) is stands_back


def test_the_bound_doubles_while_nobody_else_takes_it_and_is_small_again_after_a_refusal() -> None:
    turns, now, bounds = Turns(), 100.0, []
    for _ in range(6):
        begin, pause = now, 0.0
        while not pause:
            pause, now = run(turns, now, 1, hold=0.001, trip=0.0)
        bounds.append(now - begin)
        now += pause
    assert bounds == pytest.approx([FIRST_BOUND, 0.064, 0.128, LAST_BOUND, LAST_BOUND, LAST_BOUND], abs=0.002)
    turns.refused(now, now, woken=True)
    turns.granted(now + 0.01, now)
    assert turns.freed(now + FIRST_BOUND / 2) == 0.0
    assert turns.freed(now + 0.011 + FIRST_BOUND) > 0.0
    assert turns.crowded(now + MEMORY / 2)
    assert not turns.crowded(now + 2 * MEMORY)


def test_who_has_let_the_most_turns_pass_asks_first() -> None:
    turns = Turns()
    turns.most_passed = 3
    assert [turns.passes() for _ in range(4)] == [True, True, False, False]
    turns.granted(1.0, 1.0)
    assert turns.passed == 0
    assert turns.passes()


def test_who_asked_first_in_vain_goes_to_the_end_of_the_circle() -> None:
    turns = Turns()
    turns.most_passed = 5
    assert [turns.passes() for _ in range(4)] == [True] * 4
    assert [turns.passes() for _ in range(FIRST_IN_VAIN)] == [False] * FIRST_IN_VAIN
    assert [turns.passes() for _ in range(4)] == [True] * 4
    turns.granted(1.0, 1.0)
    turns.most_passed = 1
    assert [turns.passes() for _ in range(2)] == [False] * 2


def test_where_no_end_was_told_none_is_awaited_for_a_while() -> None:
    turns = Turns()
    assert turns.told(1.0)
    turns.untold(1.0)
    assert not turns.told(1.0 + LAST_BOUND / 2)
    assert turns.told(1.0 + 2 * LAST_BOUND)


def test_who_was_outrun_again_and_again_asks_to_go_first_for_as_long_as_it_needs() -> None:
    turns = Turns()
    for times in range(1, OUTRUN + 4):
        turns.refused(now=times + 0.0625, asked=times, woken=True)
        # Who looks because the holder's time is over, or it is time for a look, competes with nobody.
        turns.refused(now=times + 0.5, asked=times, woken=False)
        wanted = (ceil(1000 * (0.0625 + WAKE_CAP)), times) if times >= OUTRUN else (0, 0)
        assert turns.precedence() == wanted
    turns.granted(10.0, 10.0)
    assert turns.precedence() == (0, 0)


@pytest.mark.parametrize(("took", "wanted"), [(0.0, STAND_BACK), (5.0, LONGEST_PAUSE)])
def test_what_it_asks_for_is_neither_too_short_nor_long(took: float, wanted: float) -> None:
    turns = Turns()
    for _ in range(OUTRUN):
        turns.refused(now=1.0 + took, asked=1.0, woken=True)
    assert turns.precedence() == (ceil(1000 * wanted), OUTRUN)
