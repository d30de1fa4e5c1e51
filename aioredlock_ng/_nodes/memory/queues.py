"""The queues of an in-memory server.

The functions follow those of `parts/queue.lua` step by step. The contract tests run against both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.keys import MAX_SLOTS, OWN_KEYS, slot_in, slot_key
from aioredlock_ng._core.tickets import LARGEST_TICKET, OFFER, SLOT_QUEUE_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Keys", "Queues", "admits", "grace_of", "is_offer_to", "queue_for"]

_CLAIM = re.compile(rb"(\d+):(.+)", re.DOTALL)
_NOTIFIED = re.compile(rb"([0-9a-f]+):")
_LIMITED = re.compile(rb".*:(\d+)#\d+", re.DOTALL)


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

    The name of a queue is the key that it is for, or that of the script for a semaphore.

    Args:
        clock: The clock of the server, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queues: dict[bytes, tuple[dict[bytes, int], float]] = {}

    def clear(self) -> None:
        """Delete all queues."""
        self._queues.clear()

    def members(self, queue: bytes) -> list[tuple[int, bytes]]:
        """Return the tickets and members of a queue, the head first."""
        members, until = self._queues.get(queue, ({}, 0.0))
        if until <= self._clock():
            self._queues.pop(queue, None)
            return []
        return sorted((ticket, member) for member, ticket in members.items())

    def left(self, key: bytes) -> int:
        """Return the milliseconds until a queue expires; -2 without a queue."""
        return round((self._queues[key][1] - self._clock()) * 1000) if self.members(key) else -2

    def add(self, queue: bytes, claim: bytes, life: float) -> None:
        """Add the member of a claim to a queue, and set the seconds until the queue expires."""
        ticket, member = _parts(claim)
        members = {member: ticket for ticket, member in self.members(queue)}
        members[member] = ticket
        self._queues[queue] = members, self._clock() + life

    def remove(self, queue: bytes, member: bytes) -> bool:
        """Remove a member from a queue. Return False if the member was not in it."""
        members, until = self._queues.get(queue, ({}, 0.0))
        if members.pop(member, None) is None or until <= self._clock():
            return False
        if not members:
            del self._queues[queue]
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
        tickets = (ticket for queue in _queues_of(key) for ticket, _ in self.members(queue))
        return min(max([kept, *tickets]), LARGEST_TICKET)

    def waiting(self, key: bytes, value: bytes) -> int:
        """Return the number of waiters of a key. An offer counts as one.

        Args:
            key: The lock's key.
            value: The value of the key.
        """
        members = {member for queue in _queues_of(key) for _, member in self.members(queue)}
        if value.startswith(OFFER):
            members.add(_parts(value.removeprefix(OFFER))[1])
        return len(members)

    def rank(self, queue: bytes, member: bytes) -> int:
        """Return the number of members before this one; -1 if it is not in the queue."""
        members = enumerate(self.members(queue))
        return next((rank for rank, (_, who) in members if who == member), -1)

    def notify_first(self, keys: Keys, queue: bytes) -> None:
        """Tell the head of a queue that it is the head. Remove members whose process is gone."""
        while members := self.members(queue):
            head = members[0][1]
            base = queue.removeprefix(SLOT_QUEUE_KEYS)
            key = queue if base == queue else slot_key(base, 1)
            if _notify(keys, head, -1, key):
                return
            self.remove(queue, head)

    def notify_waiters(self, keys: Keys, key: bytes) -> None:
        """Tell the head of each queue of a key to look at the key again."""
        for queue in _queues_of(key):
            self.notify_first(keys, queue)

    def offer(self, keys: Keys, key: bytes) -> bool:
        """Offer a key to the first waiter for it, and take that member out of its queue.

        Returns:
            False if nobody waits. The key has not changed then.
        """
        return any(self._offer_to(keys, queue, key) for queue in _queues_of(key))

    def _offer_to(self, keys: Keys, queue: bytes, key: bytes) -> bool:
        slot = None if queue == key else slot_in(key)
        for ticket, member in self.members(queue):
            if not _takes(member, slot):
                continue
            if _notify(keys, member, 0, key):
                grace = grace_of(member)
                behind = [who for _, who in self.members(queue)]
                behind = behind[behind.index(member) + 1 :]
                self.remove(queue, member)
                keys.keep(key, b"%b%d:%b" % (OFFER, ticket, member), grace / 1000)
                if behind and _takes(behind[0], slot):
                    _notify(keys, behind[0], grace, key)
                return True
            self.remove(queue, member)
        return False

    def step_out(self, keys: Keys, queue: bytes, member: bytes) -> None:
        """Remove a member from a queue. Notify the next member if the head was removed."""
        first = self.members(queue)[:1]
        if self.remove(queue, member) and first[0][1] == member:
            self.notify_first(keys, queue)

    def leave(self, keys: Keys, key: bytes, member: bytes) -> None:
        """Remove a member that no longer wants the key. An offer to it goes to the next one."""
        queue = queue_for(member, key)
        if is_offer_to(keys.get(key) or b"", member):
            self.remove(queue, member)
            self.give_back(keys, key)
        else:
            self.step_out(keys, queue, member)

    def give_back(self, keys: Keys, key: bytes) -> None:
        """Offer a key to the next waiter, or delete the key."""
        if not self.offer(keys, key):
            keys.remove(key)

    def served(self, keys: Keys, key: bytes, claim: bytes) -> None:
        """Remove the member of a claim, which has the key now, and notify the next member.

        Offers of other slots of a semaphore to the member go to the next members.
        """
        _, member = _parts(claim)
        if not member:
            return
        queue = queue_for(member, key)
        self.remove(queue, member)
        for number in range(1, _limit_of(member) + 1):
            slot = slot_key(queue.removeprefix(SLOT_QUEUE_KEYS), number)
            if is_offer_to(keys.get(slot) or b"", member):
                self.give_back(keys, slot)
        self.notify_first(keys, queue)


def queue_for(member: bytes, key: bytes) -> bytes:
    """Return the queue in which a member waits for a key."""
    slot = slot_in(key)
    return SLOT_QUEUE_KEYS + slot[0] if slot is not None and _limit_of(member) else key


def _limit_of(member: bytes) -> int:
    """Return the limit of a member that waits for a semaphore; 0 for any other member."""
    found = _LIMITED.fullmatch(member)
    return min(int(found[1]), MAX_SLOTS) if found else 0


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
    grace = member.rpartition(b":")[2].rpartition(b"#")[2]
    return max(1, int(grace)) if grace.isdigit() else 1


def _queues_of(key: bytes) -> list[bytes]:
    slot = slot_in(key)
    return [key] if slot is None else [key, SLOT_QUEUE_KEYS + slot[0]]


def _takes(member: bytes, slot: tuple[bytes, int] | None) -> bool:
    """Return False if a member has too low a limit for this slot."""
    return slot is None or not _limit_of(member) or slot[1] <= _limit_of(member)


def _parts(claim: bytes) -> tuple[int, bytes]:
    found = _CLAIM.fullmatch(claim)
    return (int(found[1]), found[2]) if found else (0, b"")


def _notify(keys: Keys, member: bytes, milliseconds: int, key: bytes) -> bool:
    manager = _NOTIFIED.match(member)
    if manager is None:
        return True
    return keys.publish(OWN_KEYS + manager[1], b"%d %b %b" % (milliseconds, member, key)) > 0
