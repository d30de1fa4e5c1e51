"""The reasons for which leases are lost, as errors and events name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aioredlock_ng._vocabulary.causes import LossCause

__all__ = [
    "CLOSED",
    "EXPIRED",
    "LOOP_CLOSED",
    "MAX_HOLD",
    "STOOD_STILL",
    "UNKEPT",
    "UNRENEWED",
    "VANISHED",
    "cause_of",
]

CLOSED = "its Redlock was closed"
LOOP_CLOSED = "the event loop of its holder was closed"
UNKEPT = "no thread renews it any more"
UNRENEWED = "its deadline passed before a quorum renewed it"
MAX_HOLD = "held longer than max_hold"
EXPIRED = "its deadline passed, and it was not to be renewed (auto_extend=False)"
VANISHED = "a quorum of nodes no longer holds its key"
STOOD_STILL = "event loop stood still for"
_CAUSES: Final[dict[str, LossCause]] = {
    CLOSED: "closed",
    LOOP_CLOSED: "closed",
    UNKEPT: "unrenewed",
    UNRENEWED: "unrenewed",
    MAX_HOLD: "max_hold",
    EXPIRED: "expired",
}
"""The value of `LeaseLost.cause` for each reason. A reason is compared only up to its first ";". A
reason that contains `STOOD_STILL` has the cause "stalled". Any other reason that is not listed here
has the cause "gone"."""


def cause_of(reason: str) -> LossCause:
    if STOOD_STILL in reason:
        return "stalled"
    return _CAUSES.get(reason.partition(";")[0], "gone")
