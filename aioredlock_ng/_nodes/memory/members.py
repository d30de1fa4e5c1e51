"""Functions for the formats of `parts/queue.lua`: members, claims and offers of queues.

A member is a waiter in a queue. A claim is the text `ticket:member`, with the ticket of the member.
"""

from __future__ import annotations

import re

from aioredlock_ng._core.keys import MAX_SLOTS, slot_in
from aioredlock_ng._core.queue_formats import OFFER, SLOT_QUEUE_KEYS
from aioredlock_ng._core.readers import READER_QUEUE_KEYS, is_reader

__all__ = [
    "admits",
    "grace_of",
    "is_offer_to",
    "limit_of",
    "offer_value",
    "parts_of",
    "queue_for",
    "queues_of",
    "slot_queue_of",
    "takes",
]

_CLAIM = re.compile(rb"(\d+):(.+)", re.DOTALL)
_GRACE = re.compile(rb"[:#]([0-9]+)\Z")
_LONGEST_GRACE = 3_600_000
_LIMITED = re.compile(rb".*:(\d+)#\d+", re.DOTALL)


def is_offer_to(value: bytes, member: bytes) -> bool:
    return value.startswith(OFFER) and parts_of(value.removeprefix(OFFER))[1] == member


def admits(value: bytes, claim: bytes) -> bool:
    """True if a value is an offer to the claim's member or to a member with a later claim."""
    if not value.startswith(OFFER):
        return False
    offered, own = parts_of(value.removeprefix(OFFER)), parts_of(claim)
    return own[1] != b"" and (offered[1] == own[1] or own < offered)


def grace_of(member: bytes) -> int:
    """Return for how many milliseconds an offer to a member is valid, at most an hour.

    The result for a damaged member is 0.
    """
    found = _GRACE.search(member)
    return int(min(float(found[1]), _LONGEST_GRACE)) if found else 0


def limit_of(member: bytes) -> int:
    """Return the highest slot that a waiter for a semaphore accepts; 0 for any other waiter."""
    found = _LIMITED.fullmatch(member)
    return min(int(found[1]), MAX_SLOTS) if found else 0


def takes(member: bytes, slot: int) -> bool:
    """Return True if a member accepts this slot. Always True for a lock, whose `slot` is 0."""
    return (limit_of(member) or slot) >= slot


def offer_value(ticket: int, member: bytes) -> bytes:
    """Return the value of a key that is offered to a member."""
    return b"%b%d:%b" % (OFFER, ticket, member)


def parts_of(claim: bytes) -> tuple[int, bytes]:
    """Return the ticket and the member of a claim; 0 and b"" for a damaged claim."""
    found = _CLAIM.fullmatch(claim)
    return (int(found[1]), found[2]) if found else (0, b"")


def slot_queue_of(key: bytes) -> bytes:
    """Return the name of the queue that all slots of a semaphore share; b"" if `key` is no slot."""
    slot = slot_in(key)
    return b"" if slot is None else SLOT_QUEUE_KEYS + slot[0]


def queues_of(key: bytes) -> list[bytes]:
    shared = slot_queue_of(key)
    own = [key, READER_QUEUE_KEYS + key]
    return [*own, shared] if shared else own


def queue_for(member: bytes, key: bytes) -> bytes:
    if is_reader(member):
        return READER_QUEUE_KEYS + key
    return (limit_of(member) and slot_queue_of(key)) or key
