"""Delays before a retry. Each delay has a random part."""

from __future__ import annotations

__all__ = ["reconnect_delay", "second_try_delay", "unreachable_delay"]


def second_try_delay(took: float, node_timeout: float, draw: float) -> float:
    """Return the delay in seconds between a split vote and the second try.

    In a split vote, several clients got votes, but none of them got a quorum. Each client then
    releases the keys that it got, which takes about a round trip. The random part spreads the
    second tries of all clients over several round trips, so that one client can win a quorum before
    the others start. The delay is at most five eighths of the node timeout.

    Args:
        took: Seconds that the first try took.
        node_timeout: Seconds that a node may take for its answer.
        draw: A random number, uniform in [0, 1).
    """
    trip = min(took, node_timeout / 8)
    return trip + max(4 * trip, node_timeout / 10) * draw


def unreachable_delay(tries: int, draw: float) -> float:
    """Return the delay in seconds before the next attempt, after `tries` attempts without a quorum.

    The delay doubles from 40 ms after the first attempt to 1 s. The random draw, uniform in [0, 1),
    then shortens the delay by at most half.
    """
    return min(1.0, 0.02 * 2.0 ** min(tries, 16)) * (0.5 + draw / 2)


def reconnect_delay(tries: int, draw: float) -> float:
    """Return the delay in seconds before the next reconnect.

    `tries` is the number of failures in a row before the latest failure. The delay doubles from
    50 ms to 5 s. The random draw, uniform in [0, 1), then shortens the delay by at most half.
    """
    return min(5.0, 0.05 * 2.0 ** min(tries, 16)) * (0.5 + draw / 2)
