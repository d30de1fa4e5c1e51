"""Majority arithmetic on the number of votes."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Verdict", "is_decided", "quorum_back_in", "quorum_of", "verdict"]


class Verdict(Enum):
    """The result of a round, as far as it is certain."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


def quorum_of(n: int) -> int:
    """Return the smallest majority of `n` nodes. The Redlock text calls it N/2 + 1."""
    return n // 2 + 1


def verdict(n: int, quorum: int, yes: int, no: int) -> Verdict:
    """Decide a round of `n` nodes as early as arithmetic allows.

    `no` counts the nodes that said no, or can no longer say yes in this round.

    Returns:
        WON once a quorum said yes. LOST once no quorum can say yes any more, for example after a
        tie with an even `n`. OPEN otherwise.
    """
    if not is_decided(n, quorum, yes, no):
        return Verdict.OPEN
    return Verdict.WON if yes >= quorum else Verdict.LOST


def is_decided(n: int, quorum: int, yes: int, no: int) -> bool:
    """True if `verdict` is not OPEN."""
    return yes >= quorum or n - no < quorum


def quorum_back_in(waits: Iterable[float | None], quorum: int) -> float | None:
    """Return the seconds until a quorum of nodes may grant; None if that is not known.

    `waits` are the seconds until each node may grant. 0.0 means now, and None means unknown.
    """
    known = sorted(wait for wait in waits if wait is not None)
    return known[quorum - 1] if len(known) >= quorum else None
