"""Each invariant reports a history that breaks it, and no other history."""

from __future__ import annotations

import pytest

from tests.simulation.invariants import (
    INVARIANTS,
    MOST_TURNS,
    MOST_TURNS_FAR,
    Exclusion,
    Fences,
    Leftover,
    Leftovers,
    Stall,
    Violation,
    effort,
    guarded_too_short,
    impatient,
    inside_lost,
    lingering,
    out_of_turn,
    overdue,
    overled,
    overrun,
    overtaken,
    too_early,
    too_impatient,
    too_many,
    too_patient,
    too_soon,
    unbacked,
)

pytestmark = pytest.mark.once

A, B = frozenset({b"a"}), frozenset({b"a", b"b"})


def test_two_valid_leases_of_one_resource_are_reported() -> None:
    assert (
        Exclusion.judge([("one", A, True, False), ("two", B, True, False)])
        == "a is held by one and by two"
    )
    assert Exclusion.judge([("one", A, True, False), ("two", B, False, False)]) == ""
    assert Exclusion.judge([("one", A, True, False), ("two", frozenset({b"c"}), True, False)]) == ""


def test_a_reader_beside_a_writer_is_reported_and_a_reader_beside_readers_is_not() -> None:
    readers = [("one", A, True, True), ("two", A, True, True)]
    assert Exclusion.judge(readers) == ""
    assert Exclusion.judge([*readers, ("three", B, False, False)]) == ""
    assert Exclusion.judge([*readers, ("three", B, True, False)]) == "a is held by two and by three"
    assert Exclusion.judge([("three", B, True, False), *readers]) == "a is held by three and by one"


def test_a_holder_beyond_the_limit_is_reported() -> None:
    holders = [("one", b"a", True), ("two", b"a", True), ("three", b"b", True)]
    assert too_many(holders, {b"a": 2, b"b": 1}) == ""
    assert too_many([*holders, ("four", b"a", False)], {b"a": 2, b"b": 1}) == ""
    assert (
        too_many([*holders, ("four", b"a", True)], {b"a": 2, b"b": 1})
        == "a has a limit of 2, and is held by one, two, four"
    )


def test_a_lease_without_a_quorum_of_keys_until_its_deadline_is_reported() -> None:
    assert unbacked("one", 2, 2) == ""
    assert unbacked("one", 1, 2) == "only 1 nodes keep the keys of one until its deadline"


def test_a_node_that_is_trusted_before_forgotten_keys_would_expire_is_reported() -> None:
    assert guarded_too_short("n0", -0.1) == guarded_too_short("n0", 0.0) == ""
    assert (
        guarded_too_short("n0", 0.5)
        == "n0 is trusted 0.500 s before keys that it forgot would have expired"
    )


def test_an_acquisition_that_gives_up_early_is_reported() -> None:
    assert impatient("one", 2.0, 2.0, 0.1) == impatient("one", 1.95, 2.0, 0.1) == ""
    assert (
        impatient("one", 1.8, 2.0, 0.1) == "one gave up after 1.800 s, although it may wait"
        " for 2.000 s"
    )


def test_a_fence_that_does_not_rise_is_reported() -> None:
    fences = Fences("success")
    assert fences.granted([b"a"], 5, began=0.0, at=1.0) == ""
    assert fences.granted([b"b"], 3, began=1.0, at=2.0) == ""
    assert (
        fences.granted([b"a"], 4, began=0.5, at=3.0) == "a: fence 4 at 3.000000 after 5 at 1.000000"
    )
    assert "fence 5" in fences.granted([b"a"], 5, began=2.0, at=4.0)
    assert fences.granted([b"a", b"b"], 6, began=2.0, at=5.0) == ""


def test_a_version_below_that_of_an_earlier_writer_is_reported() -> None:
    fences = Fences("success")
    assert fences.granted([b"a"], 16, began=0.0, at=1.0) == ""
    assert fences.granted([b"a"], 16, began=1.0, at=2.0, reads=True) == ""
    assert fences.granted([b"a"], 16, began=1.0, at=3.0, reads=True) == ""
    assert "version 15 at 4.0" in fences.granted([b"a"], 15, began=3.5, at=4.0, reads=True)
    assert "fence 16 at 5.0" in fences.granted([b"a"], 16, began=4.5, at=5.0)
    assert fences.granted([b"a"], 32, began=5.5, at=6.0) == ""


def test_only_readers_that_asked_later_need_the_version_of_an_earlier_reader() -> None:
    fences = Fences("success")
    assert fences.granted([b"a"], 31, began=0.0, at=2.0, reads=True) == ""
    assert fences.granted([b"a"], 15, began=1.0, at=3.0, reads=True) == ""
    assert "version 15" in fences.granted([b"a"], 15, began=3.5, at=4.0, reads=True)


def test_where_keys_vanish_early_only_attempts_that_began_later_need_a_higher_fence() -> None:
    fences = Fences("interval")
    assert fences.granted([b"a"], 5, began=0.0, at=2.0) == ""
    assert fences.granted([b"a"], 4, began=1.0, at=3.0) == ""
    assert "fence 3" in fences.granted([b"a"], 3, began=2.5, at=3.0)
    assert "fence 5" in fences.granted([b"a"], 5, began=1.0, at=3.0)


def test_a_holder_that_is_not_notified_of_its_loss_is_reported() -> None:
    assert overdue("one", 0.02, tolerance=0.03) == ""
    assert overdue("one", 0.04, tolerance=0.03) == "one is still held 0.040 s after its deadline"
    assert inside_lost("one", -1.0, tolerance=0.03) == ""
    assert (
        inside_lost("one", 0.04, tolerance=0.03) == "the body of one goes on 0.040 s after the loss"
    )


def test_a_leader_that_works_on_after_its_step_down_is_reported() -> None:
    assert overled("one", 0.02, tolerance=0.03) == ""
    assert (
        overled("one", 0.04, tolerance=0.03)
        == "the leader of one goes on 0.040 s after its step_down"
    )


def test_a_grant_before_the_end_of_a_min_hold_is_reported() -> None:
    assert too_early("one", b"a", 0.0) == too_early("one", b"a", -0.1) == ""
    words = "one was granted a 0.250 s before the end of a min_hold"
    assert too_early("one", b"a", 0.25) == words


def test_a_lease_that_ends_before_its_max_hold_is_reported() -> None:
    assert too_soon("one", -0.01) == too_soon("one", 0.0) == ""
    assert too_soon("one", 0.25) == "one was lost by its max_hold, which had 0.250 s left"


def test_a_lease_that_a_standstill_ends_before_the_limit_is_reported() -> None:
    assert too_impatient("one", 0.98, 1.0, tolerance=0.03) == ""
    words = "one was lost because its loop stood still for 0.960 s, although"
    assert too_impatient("one", 0.96, 1.0, tolerance=0.03) == f"{words} the stall_limit is 1.000 s"
    assert too_impatient("one", 0.96, None, tolerance=0.03) == f"{words} no stall_limit was set"


def test_a_lease_that_outlives_the_limit_of_a_standstill_is_reported() -> None:
    assert (
        too_patient("one", 1.27, 1.0, tolerance=0.03)
        == too_patient("one", 9.0, 8.0, tolerance=0.03)
        == ""
    )
    assert (
        too_patient("one", 1.29, 1.0, tolerance=0.03)
        == "one is held although its loop has stood still for 1.290 s"
    )
    assert too_patient("one", 9.04, 8.0, tolerance=0.03) != ""


def test_an_acquisition_that_takes_too_long_is_reported() -> None:
    assert overrun("one", 1.02, 1.0, tolerance=0.03) == ""
    assert (
        overrun("one", 1.05, 1.0, tolerance=0.03) == "one took 1.050 s, which is more than 1.000 s"
    )


def test_a_key_that_stays_is_reported() -> None:
    soon = Leftover("n0", b"a", b"token1", since=1.0, soon=0.2, allowed=5.0)
    late = Leftover("n1", b"a", b"token2", since=1.0, soon=None, allowed=5.0)
    assert Leftovers.judge(1.1, [soon, late]) == ""
    assert (
        Leftovers.judge(1.3, [soon, late])
        == "n0 still has a of token1, 0.300 s after its release was due"
    )
    assert (
        Leftovers.judge(6.1, [late]) == "n1 still has a of token2, 5.100 s after its expiry was due"
    )


def test_a_resource_that_is_free_and_waited_for_is_reported() -> None:
    stall, a = Stall(), (b"a",)
    assert stall.judge(1.0, 0.5, [a], set()) == ""
    assert stall.judge(1.4, 0.5, [a], set()) == ""
    assert "waited for the free a since 1.000" in stall.judge(1.6, 0.5, [a], set())


def test_a_wait_begins_anew_after_a_hold_or_a_time_without_waiters() -> None:
    stall, a = Stall(), (b"a",)
    stall.judge(1.0, 0.5, [a], set())
    assert stall.judge(1.4, 0.5, [a], {a}) == ""
    assert stall.judge(1.6, 0.5, [a], set()) == ""
    assert stall.judge(1.8, 0.5, [], set()) == ""
    assert stall.judge(2.2, 0.5, [a], set()) == ""


def test_an_entry_that_stays_in_a_queue_is_reported() -> None:
    assert lingering("n0", b"a", b"m:1:50", since=0.1, allowed=0.2) == ""
    words = "n0 still has m:1:50 in the queue of a, 0.300 s after the end of its wait"
    assert lingering("n0", b"a", b"m:1:50", since=0.3, allowed=0.2) == words


def test_a_waiter_that_is_overtaken_again_and_again_is_reported() -> None:
    assert overtaken("one", times=12, waiters=2) == ""
    assert overtaken("one", times=13, waiters=2) == "one was overtaken 13 times among 2 waiters"
    assert overtaken("one", times=16, waiters=2, deaf=True) == ""
    assert (
        overtaken("one", times=17, waiters=2, deaf=True)
        == "one was overtaken 17 times among 2 waiters"
    )


def test_a_waiter_that_waits_for_many_grants_to_the_other_side_is_reported() -> None:
    assert out_of_turn("one", MOST_TURNS) == ""
    assert out_of_turn("one", MOST_TURNS + 1) == "one waited for 5 grants to the other side"
    assert out_of_turn("one", MOST_TURNS_FAR, MOST_TURNS_FAR) == ""
    assert (
        out_of_turn("one", MOST_TURNS_FAR + 1, MOST_TURNS_FAR)
        == "one waited for 6 grants to the other side"
    )


def test_a_crowd_with_too_many_attempts_or_commands_is_reported() -> None:
    assert effort(0, 1000, 1000.0) == effort(100, 270, 850.0) == ""
    assert effort(100, 271, 850.0) == "271 attempts for 100 acquisitions"
    assert effort(100, 270, 851.0) == "851 commands per node for 100 acquisitions"


def test_the_longest_wait_for_a_free_resource_is_known() -> None:
    stall, a = Stall(), (b"a",)
    for at in (1.0, 1.3, 1.4):
        stall.judge(at, 0.5, [a], set())
    stall.judge(1.5, 0.5, [a], {a})
    assert stall.longest == pytest.approx(0.4)


def test_a_violation_names_its_invariant() -> None:
    for name, words in INVARIANTS.items():
        assert (
            str(Violation(name, 1.5, "something"))
            == f"{name} violated at 1.500000 s: something ({words})"
        )
