"""Rates, shares, waits, gaps, hand-overs, medians and bars are right for given numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.crowd.cases import BARS, CASES, SHAPES, chosen
from benchmarks.crowd.figures import (
    Process,
    crowd,
    gaps,
    longest_gap,
    most_inside,
    reached,
    switches,
    wire_only,
)
from benchmarks.crowd.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.once


def process(acquired: int, **changed: Any) -> Process:
    """Return two seconds of a process, with two attempts and thirty replies per acquisition."""
    figures: Process = {
        "seconds": 2.0,
        "acquired": acquired,
        "acquired_in_all": acquired + 5,
        "longest_wait": 0.1,
        "leases": acquired,
        "attempts": 2 * acquired,
        "replies": 30 * acquired,
        "pushes": 10 * acquired,
        "handoff": 0.001,
        "errors": 0,
    }
    return {**figures, **changed}  # type: ignore[typeddict-item]


def test_a_crowd_has_the_summed_rate_and_the_average_cost_of_an_acquisition() -> None:
    found = crowd([process(30), process(10, attempts=100)], waiters=1, nodes=5, served=0)
    assert found["rate"] == 20.0
    assert found["attempts"] == (60 + 100) / 40
    assert found["commands"] == 30 / 5
    assert found["pushes"] == 10 / 5


def test_shares_are_1_where_every_process_got_as_much() -> None:
    assert crowd([process(7), process(7)], 1, 5, 0)["share_least"] == 1.0
    found = crowd([process(30), process(10), process(20)], 1, 5, 0)
    assert (found["share_least"], found["share_most"]) == (0.5, 1.5)


def test_a_process_that_got_nothing_has_no_share() -> None:
    found = crowd([process(30), process(0)], 1, 5, 0)
    assert (found["share_least"], found["share_most"]) == (0.0, 2.0)


def test_a_crowd_that_got_nothing_has_figures_all_the_same() -> None:
    found = crowd([process(0, longest_wait=2.0, acquired_in_all=0), process(0)], 1, 5, 0)
    assert (found["rate"], found["wait"], found["attempts"], found["commands"]) == (
        0.0,
        2.0,
        None,
        None,
    )


def test_the_longest_wait_counts_in_rounds_of_as_many_acquisitions_as_there_are_waiters() -> None:
    # Twenty acquisitions a second, and four waiters: a round takes 0.2 s.
    found = crowd(
        [process(20, longest_wait=0.7), process(20, longest_wait=0.3)], waiters=2, nodes=5, served=0
    )
    assert found["wait"] == 0.7
    assert found["wait_rounds"] == pytest.approx(3.5)


def test_the_larger_count_of_commands_stands() -> None:
    assert crowd([process(20)], 1, 5, served=25 * 40)["commands"] == 40 / 5
    assert crowd([process(20)], 1, 5, served=25 * 20)["commands"] == 30 / 5


def test_a_hand_off_is_known_only_of_a_process_alone() -> None:
    assert crowd([process(20)], 1, 5, 0)["handoff"] == 0.001
    assert crowd([process(20), process(20)], 1, 5, 0)["handoff"] is None


def test_calls_that_a_script_could_have_made_do_not_count_as_commands_on_the_wire() -> None:
    stats = "# Commandstats\r\n" + "\r\n".join(
        f"cmdstat_{name}:calls={calls},usec=1,usec_per_call=1.00,rejected_calls=0,failed_calls=0"
        for name, calls in (
            ("evalsha", 7),
            ("set", 100),
            ("publish", 50),
            ("client|caching", 3),
            ("eval", 1),
            ("info", 9),
        )
    )
    assert wire_only(stats) == 11


def test_a_gap_is_a_time_without_a_holder() -> None:
    holds = [(3.0, 4.0), (1.0, 2.0), (4.5, 6.0)]
    assert gaps(holds, 0.0, 8.0) == [1.0, 1.0, 0.5, 2.0]
    assert longest_gap(holds, 0.0, 8.0) == 2.0


def test_gaps_are_cut_at_both_ends_of_the_measured_time() -> None:
    holds = [(1.0, 2.0), (5.0, 6.0)]
    assert gaps(holds, 3.0, 4.0) == [1.0]
    assert gaps(holds, 1.5, 5.5) == [3.0]
    assert longest_gap(holds, 5.2, 5.8) == 0.0


def test_holds_of_two_at_once_hide_no_gap_and_make_none() -> None:
    assert gaps([(1.0, 5.0), (2.0, 3.0), (6.0, 7.0)], 1.0, 7.0) == [1.0]


def test_holders_overlap_only_while_none_of_them_has_left() -> None:
    assert most_inside([(0, 2), (1, 3), (2, 4)]) == 2
    assert reached([(0, 2), (1, 3), (2, 4)], 3, since=0) is None


def test_a_number_of_holders_counts_from_the_first_acquisition_that_makes_it_up() -> None:
    holds = [(0, 9), (1, 2), (4, 7), (5, 6)]
    assert reached(holds, 2, since=0) == 1
    assert reached(holds, 2, since=3) == 1
    assert reached(holds, 3, since=3) == 2


def test_only_a_lock_that_goes_to_another_process_is_handed_over() -> None:
    traces = {1: [(0.0, 1.0), (1.1, 2.0), (4.0, 5.0)], 2: [(2.5, 3.0)]}
    assert switches(traces, 0.0) == [0.5, 1.0]
    assert switches(traces, 2.2) == [1.0]


def test_a_case_includes_the_case_that_it_is_compared_with() -> None:
    assert chosen(["40x1"]) == ["1x1", "40x1"]
    assert chosen(["woken"]) == ["woken"]
    assert chosen(["semaphore-hung"]) == ["asyncio-semaphore", "semaphore", "semaphore-hung"]
    assert chosen([]) == list(CASES)


def test_every_bar_belongs_to_a_case() -> None:
    assert BARS.keys() <= set(CASES)
    assert {shape.base for shape in SHAPES.values()} - {""} <= SHAPES.keys()


def row(case: str, number: int, processes: Sequence[Process], code: str = "ours") -> dict[str, Any]:
    return {
        "round": number,
        "case": case,
        "code": code,
        "commands_by_servers": 1.0,
        **crowd(processes, 1, 5, 0),
    }


def test_a_ratio_is_the_median_of_the_ratios_within_each_round() -> None:
    rows = []
    for number, (alone, all_of_them) in enumerate(((100, 50), (10, 9), (100, 60))):
        rows += [row("1x1", number, [process(alone)]), row("40x1", number, [process(all_of_them)])]
    outcome = summarise(rows, ["1x1", "40x1"], ["ours"])
    medians = {summary["case"]: summary for summary in outcome.medians}
    assert medians["40x1"]["ratio"] == 0.6
    assert medians["40x1"]["rate"] == 25.0
    assert medians["1x1"]["ratio"] is None
    kept = {bar.text: bar.kept for bar in outcome.bars}
    assert not kept["crowd 40x1: rate / that of one process alone"]
    assert kept["crowd 40x1: attempts per acquisition"]


def test_another_tree_of_the_library_is_compared_with_itself_and_has_no_bars() -> None:
    rows = [
        row("1x1", 0, [process(100)]),
        row("1x1", 0, [process(10)], "old"),
        row("40x1", 0, [process(90)]),
        row("40x1", 0, [process(2)], "old"),
    ]
    outcome = summarise(rows, ["1x1", "40x1"], ["ours", "old"])
    ratios = {
        summary["code"]: summary["ratio"]
        for summary in outcome.medians
        if summary["case"] == "40x1"
    }
    assert ratios == {"ours": 0.9, "old": 0.2}
    assert next(bar for bar in outcome.bars if "rate" in bar.text).value == 0.9


def test_a_case_that_could_not_run_is_a_note_and_a_missed_bar() -> None:
    outcome = summarise(
        [{"round": 0, "case": "herd", "code": "ours", "failed": "no server"}], ["herd"], ["ours"]
    )
    assert "herd, ours: no server" in outcome.notes
    assert [bar.kept for bar in outcome.bars] == [False, False, False]


def test_the_longest_wait_of_all_rounds_counts() -> None:
    rows = [
        row("20x5", number, [process(100, longest_wait=wait)])
        for number, wait in enumerate((0.4, 3.0, 0.4))
    ]
    outcome = summarise(rows, ["20x5"], ["ours"])
    assert outcome.medians[0]["wait"] == 3.0
    assert not next(bar for bar in outcome.bars if "longest wait" in bar.text).kept


def test_the_longest_gap_of_all_rounds_counts() -> None:
    quiet = dict.fromkeys(("quiet_gap", "stopped_gap", "stopped_gaps", "resumed_gap"), 0.0)
    rows = [
        {"round": number, "case": "killed", "code": "ours", "killed_gap": gap, "errors": 0, **quiet}
        for number, gap in enumerate((0.005, 0.104, 0.006))
    ]
    outcome = summarise(rows, ["killed"], ["ours"])
    assert outcome.medians[0]["killed_gap"] == 0.104
    assert [bar.kept for bar in outcome.bars] == [False, True, True, True]


def test_failed_calls_miss_a_bar_in_the_cases_without_a_plain_crowd() -> None:
    figures = ("rate", "switches", "p50", "p99", "two_trips", "bare", "bare_ratio")
    rows = [
        {"round": number, "case": "handover", "code": "ours", "ratio": 1.0, "errors": errors}
        | dict.fromkeys(figures, 1.0)
        for number, errors in enumerate((0, 2, 0))
    ]
    outcome = summarise(rows, ["handover"], ["ours"])
    assert [(bar.value, bar.kept) for bar in outcome.bars] == [(1.0, True), (2, False)]


def test_a_wake_up_is_measured_against_a_round_trip_of_the_floor() -> None:
    delays = {"redis-py": [0.0012, 0.0009, 0.002], "redis-cli": [], "expiry": [0.005]}
    rows = [{"round": 0, "case": "woken", "code": "ours", "trip": 0.0006, **delays}]
    outcome = summarise(rows, ["woken"], ["ours"])
    (summary,) = outcome.medians
    assert summary["redis_py_ms"] == pytest.approx(1.2)
    assert summary["redis_py_over"] == pytest.approx(1.0)
    assert summary["deleted_ms"] is None
    assert not any("DEL" in bar.text for bar in outcome.bars), "there is no redis-cli"
