"""What operators get when they ask: plain frozen records without behaviour."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LockInfo", "NodeAnswer", "Stats"]


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What one node knows of a lock.

    Attributes:
        node: Its address.
        token: The value of the key; None where there is no key or no answer.
        remaining: Seconds that the key has left; None where there is no key, no expiry or no answer.
        detail: Why there is no answer.
    """

    node: str
    token: str | None
    remaining: float | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LockInfo:
    """Who holds a lock.

    Attributes:
        resource: Its name.
        held: True when a quorum of nodes holds the same token.
        token: That token, or the most frequent one; None when no node has a key.
        nodes: How many nodes hold that token.
        total: How many nodes there are.
        remaining: Seconds until expiry alone takes the quorum away: the q-th largest remaining time, silent nodes
            counted as 0. Infinite for keys without expiry.
        answers: One per node.
    """

    resource: str
    held: bool
    token: str | None
    nodes: int
    total: int
    remaining: float
    answers: tuple[NodeAnswer, ...]


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of one manager since it was opened, and its state now.

    Attributes:
        acquired: Leases granted.
        attempts: Rounds sent to get them.
        refused: Attempts that found no quorum free.
        unreachable: Refused attempts that could not ask a quorum.
        timeouts: Acquisitions that ended by `blocking_timeout`.
        cancelled: Acquisitions whose caller was cancelled.
        released: Leases given up by their holder.
        lost: Leases lost.
        renewals: Leases renewed, summed over renewals.
        renewals_failed: Renewals that no quorum confirmed in time.
        handoffs: Leases handed to the next waiter of this process within the releasing tick.
        wakeups: Waiters woken by the servers or by an overlapping local lock.
        looks: Attempts after waiting, whether woken or because a timer (expiry, fallback) said so; `looks - wakeups`
            or more of them came from timers.
        held: Leases held now.
        waiting: Acquisitions that contend or wait now.
    """

    acquired: int
    attempts: int
    refused: int
    unreachable: int
    timeouts: int
    cancelled: int
    released: int
    lost: int
    renewals: int
    renewals_failed: int
    handoffs: int
    wakeups: int
    looks: int
    held: int
    waiting: int
