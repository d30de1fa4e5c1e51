"""Decides which ticket a waiter takes.

A waiter takes a ticket above all tickets that its manager has seen, as in Lamport's bakery
algorithm. The waiter brings the same ticket to every node. So the queues on all nodes have the same
order, and no wall clock is needed.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LARGEST_TICKET", "TicketClock"]

LARGEST_TICKET: Final = 2**53
"""The largest ticket. Scores of a sorted set are doubles, and two larger tickets could become
equal."""


class TicketClock:
    """The highest ticket that a manager has seen or chosen: a Lamport clock.

    All locks of a manager share one clock, because a waiter for several names has the same ticket
    in all queues. If tickets began at 1 in each empty queue, a later waiter could get a lower
    ticket in one of these queues, and overtake it.
    """

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest = 0

    def see(self, ticket: int) -> None:
        """Record that a waiter has this ticket.

        The largest ticket is ignored, because only damaged data contains it.
        """
        if ticket < LARGEST_TICKET:
            self._latest = max(self._latest, ticket)

    def choose(self) -> int:
        """Return a ticket above all tickets seen or chosen."""
        self._latest += 1
        return self._latest
