"""The queue of a lock as data: members, claims and messages."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioredlock_ng._core.keys import OWN_KEYS, message_channel
from aioredlock_ng._core.queue_formats import (
    OFFER,
    Message,
    claim_of,
    is_offer,
    member_of,
    message_of,
    middle_of,
)
from aioredlock_ng._core.tickets import LARGEST_TICKET
from aioredlock_ng._nodes.memory.members import admits, grace_of

MANAGER = b"0123456789abcdef"


@given(st.binary(max_size=60))
@example(b"")
@example(b"- m k")
@example("٣ m k".encode())
@example(b"9" * 30 + b" m k")
@example(b"--1 m k")
@example(b"1_0 m k")
def test_no_bytes_make_a_message_raise(payload: bytes) -> None:
    message = message_of(payload)
    assert message is None or message.left is None or 0.0 <= message.left < 10**9


@given(st.integers(-1, 10**9), st.integers(1, 10**6), st.binary(min_size=1))
def test_a_message_is_read_as_it_was_written_for_every_key(
    milliseconds: int, line: int, key: bytes
) -> None:
    member = member_of(MANAGER, line, 0.1, notified=True)
    left = None if milliseconds < 0 else milliseconds / 1000
    assert message_of(b"%d %b %b" % (milliseconds, member, key)) == Message(left, member, key)


def test_a_payload_that_this_library_does_not_send_is_no_message() -> None:
    payloads = [
        *(b"turn a", b"1", b"1 m", b"x m k", b" m k", b"1.5 m k"),
        *(b"0: m k", b"5:1 m k", b"0:-1 m k", b"0:9007199254740993 m k"),
    ]
    assert [payload for payload in payloads if message_of(payload) is not None] == []


@pytest.mark.parametrize("milliseconds", [2, 3, 10**9])
def test_the_second_waiter_reads_when_the_key_may_be_free(milliseconds: int) -> None:
    message = message_of(b"%d m k" % -milliseconds)
    assert message == Message(milliseconds / 1000, b"m", b"k", second=True)


def test_an_offer_of_a_slot_is_read_for_every_ticket_that_a_waiter_can_have() -> None:
    for ticket in (0, 1, LARGEST_TICKET - 1, LARGEST_TICKET):
        message = message_of(b"0:%d m k" % ticket)
        assert message == Message(0.0, b"m", b"k", highest=ticket)


def test_a_member_names_its_process_line_and_grace() -> None:
    assert member_of(MANAGER, 3, 0.1, notified=True) == b"0123456789abcdef:3:100"
    assert member_of(MANAGER, 3, 0.0, notified=True) == b"0123456789abcdef:3:1", (
        "an offer without a life cannot be written"
    )
    assert member_of(MANAGER, 3, 0.1, notified=False) == b"-0123456789abcdef:3:100"
    assert message_channel(MANAGER) == OWN_KEYS + MANAGER


@given(st.integers(1, 10**30))
def test_no_claim_has_a_ticket_that_scores_cannot_count(ticket: int) -> None:
    counted = int(claim_of(ticket, b"m").partition(b":")[0])
    assert counted == min(ticket, LARGEST_TICKET)
    assert float(counted) == counted


def test_an_offer_is_distinguished_from_tokens_and_from_other_keys_of_the_library() -> None:
    assert is_offer(OFFER + claim_of(1, b"m"))
    assert is_offer(OFFER)
    for value in (b"", b"token", OWN_KEYS, b"x" + OFFER, OFFER[:-1]):
        assert not is_offer(value)


@pytest.mark.parametrize(
    ("counts", "middle"),
    [([], None), ([7], 7), ([2, 9], 2), ([2, 0, 9], 2), ([0, 0, 9], 0), ([3, 3, 9, 0], 3)],
)
def test_a_minority_of_the_nodes_neither_adds_waiters_nor_hides_them(
    counts: list[int], middle: int | None
) -> None:
    assert middle_of(counts) == middle


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_no_bytes_make_an_offer_or_a_claim_raise(value: bytes, claim: bytes) -> None:
    """The in-memory server reads values that other clients wrote."""
    assert admits(OFFER + value, claim) in (True, False)
    assert not admits(value, claim) or is_offer(value)
    assert 0 <= grace_of(value) <= 3_600_000


@pytest.mark.parametrize(
    ("member", "grace"),
    [
        (b"m:1:20", 20),
        (b"m:1:4#20", 20),
        (b"m:1:r#0", 0),
        (b"m:1:", 0),
        (b"20", 0),
        (b"m:1:3600001", 3_600_000),
        (b"m:1:" + b"9" * 9999, 3_600_000),
    ],
)
def test_a_member_in_memory_has_the_grace_that_the_scripts_read(member: bytes, grace: int) -> None:
    assert grace_of(member) == grace


@given(st.integers(1, 9), st.integers(1, 9), st.binary(min_size=1), st.binary(min_size=1))
def test_each_offer_to_two_waiters_admits_the_first_and_only_one_admits_the_second(
    one: int, two: int, member: bytes, other: bytes
) -> None:
    if member == other:
        return
    first, second = sorted([(one, member), (two, other)])
    assert admits(OFFER + claim_of(*second), claim_of(*first))
    assert admits(OFFER + claim_of(*second), claim_of(*second))
    assert not admits(OFFER + claim_of(*first), claim_of(*second))
