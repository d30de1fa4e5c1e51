"""The queues of an in-memory server: what `parts/queue.lua` does, step by step; no I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng._core.tickets import LARGEST_TICKET, OFFER

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Keys", "Queues", "admits", "grace_of", "is_offer_to"]

_CLAIM = re.compile(rb"(\d+):(.+)", re.DOTALL)
_NOTIFIED = re.compile(rb"([0-9a-f]+):")


class Keys(Protocol):
    """The keys of the server."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key that has not expired."""

    def keep(self, key: bytes, value: bytes, ttl: float) -> None:
        """Set a key for `ttl` seconds."""

    def remove(self, key: bytes) -> None:
        """Delete a key."""

    def publish(self, channel: bytes, message: bytes) -> int:
        """Send a message, and return how many connections received it."""


class Queues:
    """The queue of every lock's key.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queues: dict[bytes, tuple[dict[bytes, int], float]] = {}

    def clear(self) -> None:
        """Forget all of them."""
        self._queues.clear()

    def members(self, key: bytes) -> list[tuple[int, bytes]]:
        """The members of a queue with their tickets, the first one first."""
        queue, until = self._queues.get(key, ({}, 0.0))
        if until <= self._clock():
            self._queues.pop(key, None)
            return []
        return sorted((ticket, member) for member, ticket in queue.items())

    def left(self, key: bytes) -> int:
        """Milliseconds that a queue has left; -2 without one."""
        return round((self._queues[key][1] - self._clock()) * 1000) if self.members(key) else -2

    def add(self, key: bytes, claim: bytes, life: float) -> None:
        """Put a claim's member into a queue."""
        ticket, member = _parts(claim)
        queue = {member: ticket for ticket, member in self.members(key)}
        queue[member] = ticket
        self._queues[key] = queue, self._clock() + life

    def remove(self, key: bytes, member: bytes) -> bool:
        """Take a member out of a queue."""
        queue, until = self._queues.get(key, ({}, 0.0))
        if queue.pop(member, None) is None or until <= self._clock():
            return False
        if not queue:
            del self._queues[key]
        return True

    def highest(self, key: bytes, value: bytes | None) -> int:
        """See `highest_ticket` in the script; the value is that of the key."""
        kept = _parts(value.removeprefix(OFFER))[0] if value is not None and value.startswith(OFFER) else 0
        return min(max([kept, *(ticket for ticket, _ in self.members(key))]), LARGEST_TICKET)

    def waiting(self, key: bytes, value: bytes) -> int:
        """See `waiting` in the script; the value is that of the key."""
        members = {member for _, member in self.members(key)}
        if value.startswith(OFFER):
            members.add(_parts(value.removeprefix(OFFER))[1])
        return len(members)

    def rank(self, key: bytes, member: bytes) -> int:
        """How many stand before a member; -1 where it does not stand there."""
        return next((rank for rank, (_, who) in enumerate(self.members(key)) if who == member), -1)

    def first(self, key: bytes) -> bytes | None:
        """The first in a queue."""
        members = self.members(key)
        return members[0][1] if members else None

    def notify_first(self, keys: Keys, key: bytes, milliseconds: int) -> None:
        """See `notify_first` in the script."""
        while (first := self.first(key)) is not None and not _notify(keys, first, milliseconds, key):
            self.remove(key, first)

    def offer(self, keys: Keys, key: bytes) -> bool:
        """See `offer` in the script."""
        while members := self.members(key):
            ticket, member = members[0]
            if _notify(keys, member, 0, key):
                grace = grace_of(member)
                self.remove(key, member)
                keys.keep(key, b"%b%d:%b" % (OFFER, ticket, member), grace / 1000)
                if len(members) > 1:
                    _notify(keys, members[1][1], grace, key)
                return True
            self.remove(key, member)
        return False

    def step_out(self, keys: Keys, key: bytes, member: bytes) -> None:
        """See `step_out` in the script."""
        first = self.first(key)
        if self.remove(key, member) and first == member:
            self.notify_first(keys, key, -1)

    def leave(self, keys: Keys, key: bytes, member: bytes) -> None:
        """See `leave` in the script."""
        if is_offer_to(keys.get(key) or b"", member):
            self.remove(key, member)
            if not self.offer(keys, key):
                keys.remove(key)
        else:
            self.step_out(keys, key, member)

    def served(self, keys: Keys, key: bytes, claim: bytes) -> None:
        """See `served` in the script, for one key."""
        _, member = _parts(claim)
        if member:
            self.remove(key, member)
            self.notify_first(keys, key, -1)


def is_offer_to(value: bytes, member: bytes) -> bool:
    """See `is_offer_to` in the script."""
    return value.startswith(OFFER) and _parts(value.removeprefix(OFFER))[1] == member


def admits(value: bytes, claim: bytes) -> bool:
    """See `admits` in the script."""
    if not value.startswith(OFFER):
        return False
    offered, own = _parts(value.removeprefix(OFFER)), _parts(claim)
    return own[1] != b"" and (offered[1] == own[1] or own < offered)


def grace_of(member: bytes) -> int:
    """Return the milliseconds that an offer to a member lives."""
    grace = member.rpartition(b":")[2]
    return max(1, int(grace)) if grace.isdigit() else 1


def _parts(claim: bytes) -> tuple[int, bytes]:
    found = _CLAIM.fullmatch(claim)
    return (int(found[1]), found[2]) if found else (0, b"")


def _notify(keys: Keys, member: bytes, milliseconds: int, key: bytes) -> bool:
    manager = _NOTIFIED.match(member)
    if manager is None:
        return True
    return keys.publish(OWN_KEYS + manager[1], b"%d %b %b" % (milliseconds, member, key)) > 0
