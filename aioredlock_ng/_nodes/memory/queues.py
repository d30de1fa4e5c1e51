"""The queues of an in-memory server.

The functions follow those of `parts/queue.lua` step by step. The contract tests run against both.
"""

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
    """The keys of the server, as far as queues need them."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if the key does not exist."""

    def keep(self, key: bytes, value: bytes, ttl: float) -> None:
        """Set a key for `ttl` seconds."""

    def remove(self, key: bytes) -> None:
        """Delete a key."""

    def publish(self, channel: bytes, message: bytes) -> int:
        """Send a message, and return the number of connections that received it."""


class Queues:
    """The queues of all keys of a server.

    Args:
        clock: The clock of the server, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queues: dict[bytes, tuple[dict[bytes, int], float]] = {}

    def clear(self) -> None:
        """Delete all queues."""
        self._queues.clear()

    def members(self, key: bytes) -> list[tuple[int, bytes]]:
        """Return the tickets and members of a queue, the head first."""
        queue, until = self._queues.get(key, ({}, 0.0))
        if until <= self._clock():
            self._queues.pop(key, None)
            return []
        return sorted((ticket, member) for member, ticket in queue.items())

    def left(self, key: bytes) -> int:
        """Return the milliseconds until a queue expires; -2 without a queue."""
        return round((self._queues[key][1] - self._clock()) * 1000) if self.members(key) else -2

    def add(self, key: bytes, claim: bytes, life: float) -> None:
        """Add the member of a claim to a queue, and set the seconds until the queue expires."""
        ticket, member = _parts(claim)
        queue = {member: ticket for ticket, member in self.members(key)}
        queue[member] = ticket
        self._queues[key] = queue, self._clock() + life

    def remove(self, key: bytes, member: bytes) -> bool:
        """Remove a member from a queue. Return False if the member was not in it."""
        queue, until = self._queues.get(key, ({}, 0.0))
        if queue.pop(member, None) is None or until <= self._clock():
            return False
        if not queue:
            del self._queues[key]
        return True

    def highest(self, key: bytes, value: bytes | None) -> int:
        """Return the highest ticket of the waiters of a key; `highest_ticket` in the script.

        Args:
            key: The lock's key.
            value: The value of the key. An offer counts with its ticket.
        """
        kept = 0
        if value is not None and value.startswith(OFFER):
            kept, _ = _parts(value.removeprefix(OFFER))
        return min(max([kept, *(ticket for ticket, _ in self.members(key))]), LARGEST_TICKET)

    def waiting(self, key: bytes, value: bytes) -> int:
        """Return the number of waiters of a key. An offer counts as one.

        Args:
            key: The lock's key.
            value: The value of the key.
        """
        members = {member for _, member in self.members(key)}
        if value.startswith(OFFER):
            members.add(_parts(value.removeprefix(OFFER))[1])
        return len(members)

    def rank(self, key: bytes, member: bytes) -> int:
        """Return the number of members before this one; -1 if it is not in the queue."""
        return next((rank for rank, (_, who) in enumerate(self.members(key)) if who == member), -1)

    def first(self, key: bytes) -> bytes | None:
        """Return the member at the head of a queue; None if the queue is empty."""
        members = self.members(key)
        return members[0][1] if members else None

    def notify_first(self, keys: Keys, key: bytes, milliseconds: int) -> None:
        """Send the head of a queue a message. Remove members whose process is gone."""
        while (head := self.first(key)) is not None:
            if _notify(keys, head, milliseconds, key):
                return
            self.remove(key, head)

    def offer(self, keys: Keys, key: bytes) -> bool:
        """Offer a key to the head of its queue, and take that member out of the queue.

        Returns:
            False if nobody waits. The key has not changed then.
        """
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
        """Remove a member from a queue. Notify the next member if the head was removed."""
        first = self.first(key)
        if self.remove(key, member) and first == member:
            self.notify_first(keys, key, -1)

    def leave(self, keys: Keys, key: bytes, member: bytes) -> None:
        """Remove a member that no longer wants the key. An offer to it goes to the next one."""
        if is_offer_to(keys.get(key) or b"", member):
            self.remove(key, member)
            if not self.offer(keys, key):
                keys.remove(key)
        else:
            self.step_out(keys, key, member)

    def served(self, keys: Keys, key: bytes, claim: bytes) -> None:
        """Remove the member of a claim, which has the key now, and notify the next member."""
        _, member = _parts(claim)
        if member:
            self.remove(key, member)
            self.notify_first(keys, key, -1)


def is_offer_to(value: bytes, member: bytes) -> bool:
    """Return True if this value of a key is an offer to the member."""
    return value.startswith(OFFER) and _parts(value.removeprefix(OFFER))[1] == member


def admits(value: bytes, claim: bytes) -> bool:
    """Return True if this value of a key is an offer to the claim's member, or to one behind it."""
    if not value.startswith(OFFER):
        return False
    offered, own = _parts(value.removeprefix(OFFER)), _parts(claim)
    return own[1] != b"" and (offered[1] == own[1] or own < offered)


def grace_of(member: bytes) -> int:
    """Return the milliseconds until an offer to a member expires."""
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
