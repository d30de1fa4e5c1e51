"""The queues of an in-memory server.

The functions follow those of `parts/queue.lua` step by step. The contract tests run against both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.keys import OWN_KEYS, slot_in, slot_key
from aioredlock_ng._core.outlook import MOST_AHEAD
from aioredlock_ng._core.tickets import LARGEST_TICKET, OFFER, SLOT_QUEUE_KEYS
from aioredlock_ng._nodes.memory.members import (
    grace_of,
    is_offer_to,
    limit_of,
    offer_value,
    parts_of,
    queues_of,
    slot_queue_of,
    takes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Keys", "Queues", "queue_for"]

_DISPLACED_LIFE = 20.0
"""Seconds that a queue lives at least after a displaced member has entered it again."""

_NOTIFIED = re.compile(rb"([0-9a-f]+):")


class Keys(Protocol):
    """The keys of the server, as far as queues need them."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if the key does not exist."""

    def keep(self, key: bytes, value: bytes, ttl: float) -> None:
        """Set a key for `ttl` seconds."""

    def remove(self, key: bytes) -> None:
        """Delete a key."""

    def pttl(self, key: bytes) -> int:
        """Return the milliseconds that a key has left."""

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
        ticket, member = parts_of(claim)
        members = {member: ticket for ticket, member in self.members(queue)}
        members[member] = ticket
        self._queues[queue] = members, self._clock() + life

    def enter(self, keys: Keys, queue: bytes, claim: bytes, life: float) -> None:
        """Add a member, and remove the dead members just before it; see `enter` in the script.

        Args:
            keys: The keys of the server.
            queue: The name of the queue.
            claim: The claim of the member.
            life: Seconds that the queue lives. Each member before this one adds twice as many.
        """
        left = self.left(queue) / 1000
        self.add(queue, claim, life)
        rank = self.rank(queue, parts_of(claim)[1])
        while rank > 0 and not _publish(keys, self.members(queue)[rank - 1][1], b""):
            rank -= 1
            self.remove(queue, self.members(queue)[rank][1])
        self.add(queue, claim, max(left, life * (1 + 2 * min(max(rank, 0), MOST_AHEAD))))

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
            kept, _ = parts_of(value.removeprefix(OFFER))
        tickets = (ticket for queue in queues_of(key) for ticket, _ in self.members(queue))
        return min(max([kept, *tickets]), LARGEST_TICKET)

    def waiting(self, key: bytes, value: bytes) -> int:
        """Return the number of waiters of a key. An offer counts as one.

        Args:
            key: The lock's key.
            value: The value of the key.
        """
        members = {member for queue in queues_of(key) for _, member in self.members(queue)}
        if value.startswith(OFFER):
            members.add(parts_of(value.removeprefix(OFFER))[1])
        return len(members)

    def rank(self, queue: bytes, member: bytes) -> int:
        """Return the number of members before this one; -1 if it is not in the queue."""
        members = enumerate(self.members(queue))
        return next((rank for rank, (_, who) in members if who == member), -1)

    def notify_first(self, keys: Keys, queue: bytes, limit: int = 0) -> None:
        """Tell the first members that take the slots up to this limit; see the script."""
        base = queue.removeprefix(SLOT_QUEUE_KEYS)
        key, slot = queue if base == queue else slot_key(base, 1), 0
        while slot <= limit and (first := self.taker(queue, slot)) is not None:
            if not _notify(keys, first, -1, key):
                self.remove(queue, first)
            elif limit_of(first):
                slot = limit_of(first) + 1
            else:
                return

    def taker(self, queue: bytes, slot: int, at: int = 0) -> bytes | None:
        """Return the first member, from place `at` on, that takes this slot; None without one."""
        members = (member for _, member in self.members(queue)[at:])
        return next((member for member in members if takes(member, slot)), None)

    def notify_waiters(self, keys: Keys, key: bytes) -> None:
        """Tell the head of each queue of a key to look at the key again."""
        slot = slot_in(key)
        for queue in queues_of(key):
            self.notify_first(keys, queue, 0 if queue == key or slot is None else slot[1])

    def offer(self, keys: Keys, key: bytes) -> bool:
        """Offer a key to the first waiter for it, and take that member out of its queue.

        Returns:
            False if nobody waits. The key has not changed then.
        """
        return self._offer_lock(keys, key) or self._offer_slot(keys, key)

    def _offer_lock(self, keys: Keys, key: bytes) -> bool:
        while members := self.members(key):
            ticket, member = members[0]
            heard = _notify(keys, member, 0, key)
            self.remove(key, member)
            if heard:
                keys.keep(key, offer_value(ticket, member), grace_of(member) / 1000)
                if len(members) > 1:
                    _notify(keys, members[1][1], grace_of(member), key)
                return True
        return False

    def _offer_slot(self, keys: Keys, key: bytes) -> bool:
        slot = slot_in(key)
        if slot is None:
            return False
        queue = SLOT_QUEUE_KEYS + slot[0]
        for ticket, member in self.members(queue):
            if limit_of(member) < slot[1]:
                continue
            at = self.rank(queue, member)
            self.remove(queue, member)
            if self._share_out(keys, slot, ticket, member):
                second = self.taker(queue, slot[1], at)
                if second is not None:
                    _notify(keys, second, grace_of(member), key)
                return True
        return False

    def _share_out(self, keys: Keys, slot: tuple[bytes, int], ticket: int, member: bytes) -> bool:
        """Offer a slot to a member as well, and share out all slots on offer by ticket.

        Returns:
            False if the member's process is gone.
        """
        name, number = slot
        new = (ticket, member, 0, grace_of(member))
        offers, slots = [new], [number]
        for at in range(1, limit_of(member) + 1):
            key = slot_key(name, at)
            value = keys.get(key) or b""
            if at != number and value.startswith(OFFER):
                own, other = parts_of(value.removeprefix(OFFER))
                if limit_of(other):
                    offers.append((own, other, at, keys.pttl(key)))
                    slots.append(at)
        offers.sort()
        slots.sort()
        if any(limit_of(offer[1]) < at for offer, at in zip(offers, slots, strict=True)):
            offers, slots = [new], [number]
        shared = list(zip(offers, slots, strict=True))
        own_slot = next(at for offer, at in shared if offer is new)
        if not _notify(keys, member, 0, slot_key(name, own_slot)):
            return False
        for (own, other, before, left), at in shared:
            if before != at:
                keys.keep(slot_key(name, at), offer_value(own, other), max(1, left) / 1000)
                if other != member:
                    _notify(keys, other, 0, slot_key(name, at))
        return True

    def step_out(self, keys: Keys, queue: bytes, member: bytes) -> None:
        """Remove a member. If it was the first that takes its slots, notify the next one."""
        limit = limit_of(member)
        first = self.taker(queue, limit)
        if self.remove(queue, member) and first == member:
            self.notify_first(keys, queue, limit)

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

    def served(self, keys: Keys, key: bytes, claim: bytes, before: bytes = b"") -> None:
        """Remove the member of a claim, which has the key now, and notify the next member.

        Of a semaphore, a member whose offer was replaced enters the queue again. Offers of other
        slots go to the next members.

        Args:
            keys: The keys of the server.
            key: The key.
            claim: The claim of the member; empty for a first attempt.
            before: The value that the key had before; empty if there was none.
        """
        _, member = parts_of(claim)
        if not member:
            return
        queue = queue_for(member, key)
        self.remove(queue, member)
        if before.startswith(OFFER):
            _, other = parts_of(before.removeprefix(OFFER))
            if other != member and limit_of(other):
                life = max(self.left(queue) / 1000, _DISPLACED_LIFE)
                self.add(queue, before.removeprefix(OFFER), life)
        for number in range(1, limit_of(member) + 1):
            slot = slot_key(queue.removeprefix(SLOT_QUEUE_KEYS), number)
            if is_offer_to(keys.get(slot) or b"", member):
                self.give_back(keys, slot)
        self.notify_first(keys, queue, limit_of(member))


def queue_for(member: bytes, key: bytes) -> bytes:
    """Return the queue in which a member waits for a key."""
    return (limit_of(member) and slot_queue_of(key)) or key


def _notify(keys: Keys, member: bytes, milliseconds: int, key: bytes) -> bool:
    return _publish(keys, member, b"%d %b %b" % (milliseconds, member, key))


def _publish(keys: Keys, member: bytes, text: bytes) -> bool:
    manager = _NOTIFIED.match(member)
    return manager is None or keys.publish(OWN_KEYS + manager[1], text) > 0
