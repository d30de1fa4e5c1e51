"""The choice of a ticket for a waiter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng._core.tickets import LARGEST_TICKET, TicketClock


@given(st.lists(st.integers(0, LARGEST_TICKET - 1)))
def test_each_ticket_is_above_all_tickets_seen_or_chosen_before(tickets: list[int]) -> None:
    clock, highest = TicketClock(), 0
    for ticket in tickets:
        clock.see(ticket)
        chosen = clock.choose()
        assert chosen > max(highest, ticket)
        highest = chosen


@given(st.integers(LARGEST_TICKET))
def test_a_ticket_that_only_damaged_data_contains_does_not_move_the_clock(ticket: int) -> None:
    clock = TicketClock()
    clock.see(5)
    clock.see(ticket)
    assert clock.choose() == 6
