"""The queue of a lock as data: members, tickets, offers and messages; pure.

Each node keeps, beside a lock's key, a queue of the processes that wait for it. A waiter takes a
ticket above all tickets that a majority of nodes has seen (Lamport's bakery), and brings the same
ticket to every node. So it stands in the same place everywhere, without a clock. A release offers
the key to the first in the queue, and sends that process a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from aioredlock_ng._core.keys import OWN_KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "LARGEST_TICKET",
    "OFFER",
    "QUEUE_KEYS",
    "Message",
    "WakeCause",
    "claim_of",
    "is_offer",
    "member_of",
    "message_of",
    "middle_of",
    "seconds_until",
]

QUEUE_KEYS: Final = OWN_KEYS + b"queue:"
"""The beginning of a queue's own key; the lock's key follows."""

OFFER: Final = OWN_KEYS + b"offer:"
"""The beginning of a lock key's value while the key is kept for a waiter; the claim follows."""

LARGEST_TICKET: Final = 2**53
"""Above this the scores of a sorted set skip numbers, and two tickets could become one."""

WakeCause = Literal["told", "expiry", "look"]
"""Why a waiter asks again; see `events.WaiterWoken`."""


def member_of(manager: bytes, line: int, grace: float, *, notified: bool) -> bytes:
    """Return the name of a waiter in the queues.

    Args:
        manager: 16 hexadecimal digits; messages to the waiter go to the channel of that name.
        line: Number of the waiting line in its process.
        grace: Seconds that an offer to it lives.
        notified: False where no message reaches the process, so that it asks by itself.
    """
    return b"%b%b:%d:%d" % (b"" if notified else b"-", manager, line, max(1, round(grace * 1000)))


def claim_of(ticket: int, member: bytes) -> bytes:
    """Return what a waiter says of itself when it asks."""
    return b"%d:%b" % (min(ticket, LARGEST_TICKET), member)


def is_offer(value: bytes) -> bool:
    """True for the value of a key that nobody holds, but that is kept for a waiter."""
    return value.startswith(OFFER)


@dataclass(frozen=True, slots=True)
class Message:
    """What a node tells a waiter that did not ask.

    Attributes:
        left: Seconds until the node may grant; 0.0 now, None where the waiter has to look.
        member: The waiter.
        key: The lock's key.
    """

    left: float | None
    member: bytes
    key: bytes


def message_of(payload: bytes) -> Message | None:
    """Read a message; None for anything that this library does not send."""
    words = payload.split(b" ", 2)
    if len(words) != 3 or not words[0].removeprefix(b"-").isdigit() or len(words[0]) > 12:
        return None
    return Message(seconds_until(int(words[0])), words[1], words[2])


def seconds_until(milliseconds: int) -> float | None:
    """Return when a node may grant, in seconds, from what it says in milliseconds; None for -1, not known."""
    return None if milliseconds < 0 else milliseconds / 1000


def middle_of(counts: Sequence[int]) -> int | None:
    """Return the lower median of what the nodes say of a queue; None if no node says anything.

    Queues differ while a waiter comes or goes, and a node that was cut off may keep entries of
    processes that are gone. So a number counts that more than half of the answering nodes reach.
    """
    return sorted(counts)[(len(counts) - 1) // 2] if counts else None
