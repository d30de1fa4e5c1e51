"""The formats of a lock's queue: members, tickets, claims, offers and messages.

Each node has, beside a lock's key, a queue of the processes that wait for it. A waiter takes a
ticket above all tickets that a majority of nodes has seen (Lamport's bakery). It brings the same
ticket to every node, so that it has the same place everywhere without a clock. A release offers the
key to the head of the queue, and sends that process a message.
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
    "SLOT_QUEUE_KEYS",
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
"""Prefix of the key of a queue. The lock's key follows."""

SLOT_QUEUE_KEYS: Final = OWN_KEYS + b"slots:"
"""Prefix of the key of a semaphore's queue. The semaphore's key follows."""

OFFER: Final = OWN_KEYS + b"offer:"
"""Prefix of the value of a lock's key that is reserved for a waiter. The claim follows."""

LARGEST_TICKET: Final = 2**53
"""The largest ticket. Scores of a sorted set are doubles, and two larger tickets could become
equal."""

WakeCause = Literal["told", "expiry", "look"]
"""The reason why a waiter asks again. See `events.WaiterWoken` for each."""


def member_of(manager: bytes, line: int, grace: float, limit: int = 0, *, notified: bool) -> bytes:
    """Return the name of a waiter in the queues.

    Args:
        manager: 16 hexadecimal digits; messages to the waiter go to the channel of that name.
        line: Number of the waiting line in its process.
        grace: Seconds that an offer to the waiter lives.
        limit: The limit of the semaphore; 0 for a lock.
        notified: False if no messages reach the process, so that it polls the nodes.
    """
    limited = b"%d#" % limit if limit else b""
    asking = b"" if notified else b"-"
    return b"%b%b:%d:%b%d" % (asking, manager, line, limited, max(1, round(grace * 1000)))


def claim_of(ticket: int, member: bytes) -> bytes:
    """Return the claim of a waiter: its ticket and its name."""
    return b"%d:%b" % (min(ticket, LARGEST_TICKET), member)


def is_offer(value: bytes) -> bool:
    """Return True for the value of a key that is reserved for a waiter, and not held."""
    return value.startswith(OFFER)


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a node to a waiter.

    Attributes:
        left: Seconds until the node may grant; 0.0 now; None if the waiter must look.
        member: The name of the waiter.
        key: The lock's key.
    """

    left: float | None
    member: bytes
    key: bytes


def message_of(payload: bytes) -> Message | None:
    """Return the parsed message; None for text that this library does not send."""
    words = payload.split(b" ", 2)
    if len(words) != 3 or not words[0].removeprefix(b"-").isdigit() or len(words[0]) > 12:
        return None
    return Message(seconds_until(int(words[0])), words[1], words[2])


def seconds_until(milliseconds: int) -> float | None:
    """Return a remaining time in seconds; None for a negative one, which means not known."""
    return None if milliseconds < 0 else milliseconds / 1000


def middle_of(counts: Sequence[int]) -> int | None:
    """Return the lower median of the nodes' counts of a queue; None without a count.

    Queues differ while a waiter comes or goes, and a node that was cut off may keep entries of
    dead processes. More than half of the nodes that answered have at least the lower median.
    """
    return sorted(counts)[(len(counts) - 1) // 2] if counts else None
