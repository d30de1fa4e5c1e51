"""Majority arithmetic; it never looks at who voted or why."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Verdict", "is_decided", "quorum_back_in", "quorum_of", "verdict"]


class Verdict(Enum):
    """What is already certain about a round."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


def quorum_of(n: int) -> int:
    """The smallest number of `n` nodes that is more than half (Redlock: N/2 + 1)."""
    return n // 2 + 1


def verdict(n: int, quorum: int, yes: int, no: int) -> Verdict:
    """Decide as early as arithmetic allows.

    Args:
        n: Nodes in the set.
        quorum: How many must say yes, `quorum_of(n)`.
        yes: How many said yes.
        no: How many said no or can no longer say yes in this round.

    Returns:
        WON once a quorum said yes, LOST once no quorum can any more (a tie on an even `n` included), else OPEN.
    """
    if not is_decided(n, quorum, yes, no):
        return Verdict.OPEN
    return Verdict.WON if yes >= quorum else Verdict.LOST


def is_decided(n: int, quorum: int, yes: int, no: int) -> bool:
    """True when `verdict` is no longer OPEN; the question that is asked for every answer of every node."""
    return yes >= quorum or n - no < quorum


def quorum_back_in(waits: Iterable[float | None], quorum: int) -> float | None:
    """Return the seconds until a quorum of nodes may grant, as far as known; None where it is not.

    Args:
        waits: Per node: seconds until it may grant, 0.0 for now, None for unknown.
        quorum: How many are needed.
    """
    known = sorted(wait for wait in waits if wait is not None)
    return known[quorum - 1] if len(known) >= quorum else None
