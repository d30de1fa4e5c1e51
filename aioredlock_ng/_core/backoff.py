"""Delays as data: counts and draws in, seconds out; it never sleeps and never draws by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "WAKE_CAP",
    "quorum_free_in",
    "reconnect_delay",
    "second_try_delay",
    "split_delay",
    "unreachable_delay",
    "wake_delay",
]

SPLIT_BASE = 0.001
"""First window after a split vote: a few loopback round trips."""

SPLIT_CAP = 0.1
"""Widest window after repeated split votes; dozens of contenders are apart by then."""


def split_delay(tries: int, draw: float) -> float:
    """Seconds to stand back after the `tries`-th split vote in a row: full jitter over a doubling window."""
    window = min(SPLIT_CAP, SPLIT_BASE * 2.0 ** min(tries, 16))
    return window * draw


def second_try_delay(took: float, node_timeout: float, draw: float) -> float:
    """Return the seconds before the only second try of an attempt that does not wait, after a split vote.

    The rivals' releases arrive within about a round trip. Then the tries are spread over several round trips, so that one
    of them comes first. At most five eighths of the node timeout.

    Args:
        took: Seconds that the first try took.
        node_timeout: Seconds that a node may take.
        draw: Uniform in [0, 1).
    """
    trip = min(took, node_timeout / 8)
    return trip + max(4 * trip, node_timeout / 10) * draw


WAKE_CAP = 0.001
"""Widest deliberate delay after a wake-up; `turns.STAND_BACK` must be longer."""


def wake_delay(draw: float) -> float:
    """Seconds between a wake-up and asking where the last ones, in quick succession, led to refusals.

    Asking each time would cost both more than the hand-overs themselves: those who are woken look now and then, spread out.
    """
    return WAKE_CAP * draw


def unreachable_delay(tries: int, draw: float) -> float:
    """Seconds before asking again after no quorum could be asked: 20 ms doubling to 1 s, jittered by half."""
    return min(1.0, 0.02 * 2.0 ** min(tries, 16)) * (0.5 + draw / 2)


def reconnect_delay(tries: int, draw: float) -> float:
    """Seconds before the `tries`-th reconnect in a row: 50 ms doubling to 5 s, jittered by half."""
    return min(5.0, 0.05 * 2.0 ** min(tries, 16)) * (0.5 + draw / 2)


def quorum_free_in(remaining: Sequence[float | None], quorum: int, n: int) -> float | None:
    """Seconds until expiry alone may have freed a quorum: the q-th smallest remaining time.

    Args:
        remaining: For each node that said held, the holder's remaining seconds (None: no expiry).
        quorum: Nodes needed.
        n: Nodes in the set; those not in `remaining` count as free now (pottery's mistake was to count them as held).

    Returns:
        Seconds, 0.0 when a quorum may be free now, or None when expiry alone never frees one.
    """
    missing = quorum - (n - len(remaining))
    if missing <= 0:
        return 0.0
    finite = sorted(r for r in remaining if r is not None)
    return finite[missing - 1] if missing <= len(finite) else None
