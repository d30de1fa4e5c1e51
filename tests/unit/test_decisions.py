"""The pure floor: majority, validity, delays, votes and a lease's state, as full tables and
properties.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core import backoff, validity, votes
from aioredlock_ng._core.lease_state import IllegalMove, LeaseState, Phase, Renewal
from aioredlock_ng._core.queue_formats import (
    OFFER,
    Message,
    claim_of,
    is_offer,
    member_of,
    message_of,
)
from aioredlock_ng._core.quorum import (
    Verdict,
    is_decided,
    quorum_back_in,
    quorum_of,
    verdict,
)
from aioredlock_ng._core.replies import (
    BROKEN_COUNTER,
    GRANTED,
    Granted,
    Quarantined,
    Refused,
    Unacknowledged,
)
from aioredlock_ng._core.tally import Tally, tally, with_second_round

seconds = st.floats(0.001, 1000)
draws = st.floats(0, 1, exclude_max=True)


def test_a_quorum_is_the_smallest_majority() -> None:
    for n in range(1, 10):
        quorum = quorum_of(n)
        assert 2 * quorum > n
        assert 2 * (quorum - 1) <= n


def test_a_verdict_is_final_once_no_further_answer_can_change_it() -> None:
    for n, yes, no in product(range(1, 10), range(10), range(10)):
        if yes + no > n:
            continue
        quorum = quorum_of(n)
        ends = {yes + more >= quorum for more in range(n - yes - no + 1)}
        expected = (
            Verdict.OPEN if len(ends) == 2 else Verdict.WON if ends == {True} else Verdict.LOST
        )
        assert verdict(n, quorum, yes, no) is expected
        assert is_decided(n, quorum, yes, no) is (expected is not Verdict.OPEN)


def test_a_quorum_may_grant_once_as_many_nodes_as_a_quorum_may() -> None:
    assert quorum_back_in([3.0, None, 0.0], 2) == 3.0
    assert quorum_back_in([3.0, 1.0, 0.0], 2) == 1.0
    assert quorum_back_in([None, None, 0.0], 2) is None


@given(seconds)
def test_keys_never_live_shorter_than_the_ttl(ttl: float) -> None:
    assert ttl - 1e-9 <= validity.ttl_ms(ttl) / 1000 < ttl + 0.001 + 1e-9


def test_a_ttl_of_whole_milliseconds_is_the_life_of_the_keys() -> None:
    assert [validity.ttl_ms(number / 1000) for number in range(1, 20_000)] == [*range(1, 20_000)]


@given(seconds, st.floats(0, 0.5), seconds)
def test_a_deadline_leaves_the_drift_before_the_keys_expire(
    ttl: float, factor: float, started: float
) -> None:
    drift = validity.drift_of(ttl, factor)
    assert drift == pytest.approx(ttl * factor + 0.002)
    assert (
        validity.deadline_of(started, ttl, drift)
        <= started + validity.ttl_ms(ttl) / 1000 - 0.002 + 1e-6
    )


@given(st.floats(0.001, 10), st.floats(0, 0.5), st.none() | st.floats(0, 5))
def test_the_least_ttl_survives_a_round_that_takes_all_its_time(
    timeout: float, factor: float, worth: float | None
) -> None:
    ttl = validity.least_ttl(timeout, factor, worth)
    left = ttl - timeout - validity.drift_of(ttl, factor)
    assert left == pytest.approx(
        ttl * validity.MIN_VALIDITY_SHARE if worth is None else worth, abs=1e-6
    )


@given(seconds, seconds, draws)
def test_renewals_come_at_about_a_third_of_the_ttl(started: float, ttl: float, draw: float) -> None:
    share = (validity.renew_at(started, ttl, draw) - started) / ttl
    assert 0.29 < share < 0.34


@given(st.integers(0, 10_000), draws, st.floats(0, 10), st.floats(0.001, 10))
def test_delays_are_bounded_and_never_negative(
    tries: int, draw: float, took: float, timeout: float
) -> None:
    assert 0.01 <= backoff.unreachable_delay(tries, draw) <= 1.0
    assert 0.025 <= backoff.reconnect_delay(tries, draw) <= 5.0
    assert 0 <= backoff.second_try_delay(took, timeout, draw) <= 5 / 8 * timeout + 1e-9


def test_delays_double_from_the_first_to_the_longest_and_a_draw_halves_them_at_most() -> None:
    for delay in (backoff.unreachable_delay, backoff.reconnect_delay):
        longest = delay(99, 1.0)
        for tries in range(20):
            doubled = min(2 * delay(tries, 1.0), longest)
            assert delay(tries + 1, 1.0) == pytest.approx(doubled)
            assert delay(tries, 0.0) == pytest.approx(delay(tries, 1.0) / 2)


def test_the_names_in_a_queue_are_read_as_they_were_written() -> None:
    member = member_of(b"0123456789abcdef", 7, 0.1, notified=True)
    assert member == b"0123456789abcdef:7:100"
    assert member_of(b"0123456789abcdef", 7, 0.0, notified=False) == b"-0123456789abcdef:7:1"
    assert claim_of(3, member) == b"3:" + member
    assert is_offer(OFFER + claim_of(3, member))
    assert not is_offer(b"f" * 32)
    assert message_of(b"0 %b a key" % member) == Message(0.0, member, b"a key")
    assert message_of(b"1500 %b a" % member) == Message(1.5, member, b"a")
    assert message_of(b"-1 %b a" % member) == Message(None, member, b"a")
    assert message_of(b"-1500 %b a" % member) == Message(1.5, member, b"a", second=True)
    assert message_of(b"0:42 %b a#1" % member) == Message(0.0, member, b"a#1", highest=42)


@given(st.binary(max_size=40) | st.lists(st.binary(max_size=8), max_size=4).map(b" ".join))
def test_a_message_of_any_bytes_can_be_read_or_is_none(payload: bytes) -> None:
    message = message_of(payload)
    if message is not None:
        assert payload.endswith(b" %b %b" % (message.member, message.key))
        assert message.left is None or 0 <= message.left < 10**9


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ([Refused(0.9, 1, 0), Refused(0.9, 1, 0), GRANTED], b"a"),
        ([Refused(0.9, 2, 0), None, GRANTED], b"b"),
        ([Refused(0.9, 3, 0), Refused(0.9, 1, 0), Refused(0.9, 3, 0)], b"c"),
        ([None, votes.Unsent("down"), GRANTED], b"a"),
    ],
)
def test_a_set_waits_for_the_key_that_most_refusals_name(
    replies: list[votes.Reply], expected: bytes
) -> None:
    assert votes.blocking_key(replies, (b"a", b"b", b"c")) == expected


REPLIES = [
    (GRANTED, votes.Outcome.GRANTED, True),
    (Granted(48), votes.Outcome.GRANTED, True),
    (BROKEN_COUNTER, votes.Outcome.FAILED, True),
    (Refused(1.5, 1, 0), votes.Outcome.HELD, False),
    (Refused(None, 1, 7), votes.Outcome.HELD, False),
    (Quarantined(2.0), votes.Outcome.QUARANTINED, False),
    (Quarantined(None), votes.Outcome.QUARANTINED, False),
    (None, votes.Outcome.UNKNOWN, True),
    (votes.Dropped("cut"), votes.Outcome.UNKNOWN, True),
    (votes.Refusal("OOM command not allowed"), votes.Outcome.FAILED, False),
    (votes.Unsent("not connected"), votes.Outcome.FAILED, False),
    (b"PONG", votes.Outcome.UNKNOWN, True),
    ([b"a", b"b"], votes.Outcome.UNKNOWN, True),
    (votes.Garbled("the acquire script was answered with list of 2"), votes.Outcome.UNKNOWN, True),
]


@pytest.mark.parametrize(("reply", "outcome", "owed"), REPLIES)
def test_every_reply_has_an_outcome_and_only_a_certain_refusal_needs_no_release(
    reply: votes.Reply, outcome: votes.Outcome, owed: bool
) -> None:
    vote = votes.acquire_vote("node", reply)
    assert vote.outcome is outcome
    assert votes.may_have_set(reply) is owed
    assert str(vote).startswith(f"node: {outcome}")
    assert votes.is_held(reply) is (outcome is votes.Outcome.HELD)
    assert votes.is_granted(reply) is (outcome is votes.Outcome.GRANTED)


def test_the_remaining_time_of_a_holder_is_in_seconds_or_none_without_expiry() -> None:
    assert votes.acquire_vote("node", Refused(1.5, 1, 0)).remaining == 1.5
    assert votes.acquire_vote("node", Refused(None, 1, 0)).remaining is None


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (GRANTED, "node: granted"),
        (Refused(1.5, 1, 0), "node: held (1.5 s left)"),
        (Refused(None, 1, 0), "node: held"),
        (Quarantined(2.0), "node: quarantined (it may have forgotten locks, 2.0 s left)"),
        (Quarantined(None), "node: quarantined (it may have forgotten locks)"),
        (None, "node: unknown (no answer in time)"),
        (votes.Dropped("cut"), "node: unknown (cut)"),
        (votes.Refusal("OOM command not allowed"), "node: failed (OOM command not allowed)"),
        (votes.Unsent("not connected"), "node: failed (not connected)"),
        (b"secret", "node: unknown (an answer that does not fit the script)"),
    ],
)
def test_a_vote_says_why_the_node_did_not_grant(reply: votes.Reply, text: str) -> None:
    assert str(votes.acquire_vote("node", reply)) == text


@pytest.mark.parametrize(
    ("reply", "counter"),
    [(Granted(48), 48), (Unacknowledged(64), 64), (GRANTED, 0), (Refused(1.0, 1, 7), 0), (None, 0)],
)
def test_a_node_that_refused_or_is_silent_reports_no_counter(
    reply: votes.Reply, counter: int
) -> None:
    assert votes.counter_of(reply) == counter


@pytest.mark.parametrize(
    ("reply", "permanent"),
    [
        (votes.Unsent("a replica", permanent=True), True),
        (votes.Unsent("not connected"), False),
        (BROKEN_COUNTER, True),
        (votes.Refusal("NOPERM no permissions"), True),
        (votes.Refusal("ERR Error running script: WRONGTYPE Operation against a key"), True),
        (votes.Refusal("LOADING can't run this command or subcommand"), False),
        (votes.Refusal("OOM command not allowed"), False),
        (votes.Dropped("NOPERM no permissions"), False),
        (Refused(1.0, 1, 0), False),
        (None, False),
    ],
)
def test_only_a_refusal_that_settings_or_data_cause_is_permanent(
    reply: votes.Reply, permanent: bool
) -> None:
    assert votes.is_permanent(reply) is permanent


@pytest.mark.parametrize(
    ("granted", "held", "contested"),
    [
        (1, [9.0, None], True),
        (1, [10.0, None], True),
        (1, [8.9, None], False),
        (1, [10.1, None], False),
        (1, [None, None], False),
        (0, [9.5, 9.5], False),
    ],
)
def test_only_young_keys_beside_an_own_grant_show_simultaneous_attempts(
    granted: int, held: list[float | None], contested: bool
) -> None:
    found = Tally(held, granted, 0, True, False).contested(2, 10.0, 1.0)
    assert found is contested


def test_nodes_are_reachable_only_if_one_of_them_granted_or_refused() -> None:
    kinds: list[votes.Reply] = [
        *(None, GRANTED, Refused(9.0, 1, 0), Quarantined(1.0)),
        *(votes.Dropped("cut"), votes.Unsent("not connected")),
    ]
    for n in range(1, 5):
        for replies in product(kinds, repeat=n):
            counted = tally(replies, quorum_of(n), lambda _: "")
            assert not counted.reachable or counted.held or counted.granted


@pytest.mark.parametrize(
    ("replies", "hopeless"),
    [
        ([votes.Refusal("NOPERM no permissions"), Quarantined(None), GRANTED], True),
        ([Quarantined(None), Quarantined(None), GRANTED], True),
        ([Quarantined(None), votes.Dropped("cut"), GRANTED], False),
        ([votes.Refusal("NOPERM no permissions"), None, GRANTED], False),
    ],
)
def test_waiting_is_hopeless_once_the_nodes_without_a_permanent_refusal_are_no_quorum(
    replies: list[votes.Reply], hopeless: bool
) -> None:
    assert tally(replies, 2, lambda _: "NOPERM no permissions").hopeless is hopeless


SECOND = 64
"""The fence of a second round."""

CUT = votes.Dropped("cut")


@pytest.mark.parametrize(
    ("first", "second", "expired", "latest"),
    [
        # A node that refused the attempt may still answer the second round.
        (Refused(9.0, 1, 0), Unacknowledged(0), True, Refused(9.0, 1, 0)),
        (Refused(9.0, 1, 0), None, True, Refused(9.0, 1, 0)),
        (CUT, None, True, CUT),
        (Granted(48), None, True, None),
        (Granted(48), None, False, Granted(48)),
        (Granted(48), GRANTED, False, GRANTED),
        (Granted(48), Unacknowledged(80), False, Granted(SECOND)),
        (Granted(48), CUT, False, CUT),
        (None, Unacknowledged(80), False, Granted(SECOND)),
        (None, None, False, None),
    ],
)
def test_after_a_failed_second_round_the_vote_of_a_node_is_its_latest_answer(
    first: votes.Reply, second: votes.Reply, expired: bool, latest: votes.Reply
) -> None:
    assert with_second_round([first], [second], SECOND, expired=expired) == [latest]


FINAL = [Phase.RELEASED, Phase.ABANDONED, Phase.LOST]


def test_an_illegal_move_raises_and_leaves_the_state_as_it_was() -> None:
    for first, second in product(FINAL, [*FINAL, Phase.HELD]):
        state = LeaseState(0.0, 10.0, 9.0, None)
        with pytest.raises(IllegalMove):
            state.end(Phase.HELD)
        state.end(first, "once")
        with pytest.raises(IllegalMove):
            state.end(second, "twice")
        assert (state.phase, state.reason, state.deadline) == (first, "once", 9.0)


@pytest.mark.parametrize(
    ("phase", "left"), [(Phase.RELEASED, 0.0), (Phase.LOST, 0.0), (Phase.ABANDONED, 4.0)]
)
def test_the_remaining_time_of_an_ended_lease_depends_on_its_phase(
    phase: Phase, left: float
) -> None:
    state = LeaseState(0.0, 10.0, 9.0, None)
    state.end(phase)
    assert state.remaining(5.0) == left
    assert state.remaining(50.0) == 0.0


def test_the_shortest_ttl_is_that_of_the_renewals_that_may_have_been_executed_last() -> None:
    state = LeaseState(0.0, 10.0, 10.0, None)
    assert state.shortest_ttl == 10.0
    longer, shorter, last = (
        Renewal(1.0, 30.0, 31.0),
        Renewal(2.0, 4.0, 6.0),
        Renewal(3.0, 8.0, 11.0),
    )
    for renewal, shortest in ((longer, 10.0), (shorter, 4.0), (last, 4.0)):
        state.asked(renewal)
        assert state.shortest_ttl == shortest
    state.renewed(longer)
    assert state.shortest_ttl == 4.0, "the shorter one may still be executed"
    state.renewed(last)
    assert state.shortest_ttl == 8.0


@pytest.mark.parametrize("phase", FINAL)
def test_a_renewal_confirmed_after_the_end_of_a_lease_changes_nothing(phase: Phase) -> None:
    state, renewal = LeaseState(0.0, 10.0, 9.0, None), Renewal(3.0, 20.0, 22.0)
    state.asked(renewal)
    state.end(phase)
    assert state.renewed(renewal) is False
    assert (state.started, state.ttl, state.deadline) == (0.0, 10.0, 9.0)


def test_a_renewal_confirmed_after_a_later_one_changes_nothing() -> None:
    state = LeaseState(0.0, 10.0, 9.0, None)
    first, second = Renewal(1.0, 10.0, 10.0), Renewal(2.0, 10.0, 11.0)
    state.asked(first)
    assert state.is_latest(first)
    state.asked(second)
    assert state.is_latest(second)
    assert not state.is_latest(first)
    assert state.renewed(second) is True
    assert state.renewed(first) is False
    assert (state.started, state.deadline) == (2.0, 11.0)


@given(st.floats(1, 20), st.floats(1, 20))
def test_a_lease_never_outlives_max_hold(deadline: float, ends_at: float) -> None:
    assert LeaseState(0.0, 10.0, deadline, ends_at).deadline == min(deadline, ends_at)


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(1.0, 30.0), st.booleans()), max_size=8),
    st.randoms(),
)
def test_a_lease_never_outlives_a_renewal_that_may_have_been_executed_last(
    steps: list[tuple[float, float, bool]], order
) -> None:  # type: ignore[no-untyped-def]
    now, state = 0.0, LeaseState(0.0, 10.0, 10.0, None)
    deadlines, waiting, confirmed = [10.0], [], 0
    for wait, ttl, confirm in steps:
        now += wait
        renewal = Renewal(now, ttl, now + ttl)
        state.asked(renewal)
        waiting.append((len(deadlines), renewal))
        deadlines.append(renewal.deadline)
        if confirm:
            number, renewal = waiting.pop(order.randrange(len(waiting)))
            state.renewed(renewal)
            confirmed = max(confirmed, number)
        # A node executes in the order of sending; it may have stopped after any that was sent since
        # the confirmed one.
        assert state.deadline <= min(deadlines[confirmed:])
