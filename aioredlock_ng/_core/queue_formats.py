"""The formats of a lock's queue: members, claims, offers and messages.

Each node has, beside a lock's key, a queue of the processes that wait for the lock. The order in
the queue is the order of the waiters' tickets; see `tickets.py`. A release offers the key to the
head of the queue, and sends that process a message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng._core.tickets import LARGEST_TICKET

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "OFFER",
    "QUEUE_KEYS",
    "SLOT_QUEUE_KEYS",
    "Message",
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
"""Prefix of the value of a key that is reserved for a waiter. The waiter's claim follows."""

_MESSAGE: Final = re.compile(rb"(-?\d{1,11})(?::(\d{1,16}))? ([^ ]*) (.*)", re.DOTALL)
"""A message to a waiter; see `parts/queue.lua`."""


def member_of(
    manager: bytes,
    line: int,
    grace: float,
    limit: int = 0,
    *,
    notified: bool,
    reader: bool = False,
) -> bytes:
    """Return the name of a waiter in the queues.

    Args:
        manager: 16 hexadecimal digits, which name the channel for messages to the waiter.
        line: Number of the line of waiting tasks within its process. After the line has left the
            queues, it gets another number.
        grace: Time to live of an offer to the waiter, in seconds.
        limit: The limit of the semaphore; 0 for a lock.
        notified: False if no messages reach the process. The process then polls the nodes.
        reader: True for a waiter that wants to read.
    """
    limited = b"r#" if reader else b"%d#" % limit if limit else b""
    asking = b"" if notified else b"-"
    return b"%b%b:%d:%b%d" % (asking, manager, line, limited, max(1, round(grace * 1000)))


def claim_of(ticket: int, member: bytes) -> bytes:
    return b"%d:%b" % (min(ticket, LARGEST_TICKET), member)


def is_offer(value: bytes) -> bool:
    """Return True for the value of a key that is reserved for a waiter, and not held."""
    return value.startswith(OFFER)


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a node to a waiter, or to a process with read leases.

    Attributes:
        left: Seconds until the node may grant. 0.0 means now. None means that the waiter must
            send a refresh. In a message to readers, None means that a writer waits, and 0.0
            means that the read leases were ended by force.
        member: The name of the waiter. In a message to readers, the name of their manager.
        key: The lock's key.
        second: True if the waiter is the second in the queue. The second waiter sends a refresh
            after `left` seconds, in case the first waiter died together with the holder, or with
            the process that has an offer.
        highest: The highest ticket of a waiter for the semaphore; None if the message does not
            offer a slot.
    """

    left: float | None
    member: bytes
    key: bytes
    second: bool = False
    highest: int | None = None


def message_of(payload: bytes) -> Message | None:
    """Return the parsed message; None for a text that is no message to a waiter or to readers."""
    found = _MESSAGE.fullmatch(payload)
    if found is None:
        return None
    time, ticket, member, key = found.groups()
    milliseconds, highest = int(time), None if ticket is None else int(ticket)
    if highest is not None and (milliseconds or highest > LARGEST_TICKET):
        return None
    second = milliseconds < -1
    left = seconds_until(-milliseconds if second else milliseconds)
    return Message(left, member, key, second, highest)


def seconds_until(milliseconds: int) -> float | None:
    """Return a remaining time in seconds; None for a negative time, which means unknown."""
    return None if milliseconds < 0 else milliseconds / 1000


def middle_of(counts: Sequence[int]) -> int | None:
    """Return the lower median of the numbers that the nodes report; None if there are none.

    Queues differ while a waiter comes or goes. A node that was cut off may have dead processes in
    its queue. The median ignores the numbers of a minority of the nodes.
    """
    return sorted(counts)[(len(counts) - 1) // 2] if counts else None
