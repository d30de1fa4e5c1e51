"""The queues of an in-memory server.

The methods follow the scripts in `parts` step by step, and pass the same contract tests.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aioredlock_ng._core.keys import OWN_KEYS, slot_in, slot_key
from aioredlock_ng._core.queue_formats import OFFER, SLOT_QUEUE_KEYS
from aioredlock_ng._core.readers import READER_QUEUE_KEYS, READERS, is_reader, offer_to_reader
from aioredlock_ng._core.tickets import LARGEST_TICKET
from aioredlock_ng._nodes.memory.members import (
    grace_of,
    is_offer_to,
    limit_of,
    offer_value,
    parts_of,
    queue_for,
    queues_of,
)
from aioredlock_ng._nodes.memory.queue_store import Keys, QueueStore, is_gone, notify

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Queues"]

_DISPLACED_LIFE = 20.0
"""Least life of a queue, in seconds, after a member whose offer was replaced enters it again."""

_READING = re.compile(rb"[0-9a-f]+:([0-9a-f]+)")


class Queues(QueueStore):
    """The queues of a server, with the offers and messages to their members."""

    def highest(self, key: bytes, value: bytes | None) -> int:
        """Return the highest ticket of a key's waiters; 0 without waiters.

        If the value of the key is an offer, the ticket in the offer counts, too.
        """
        kept = 0
        if value is not None and value.startswith(OFFER):
            kept, _ = parts_of(value.removeprefix(OFFER))
        tickets = (ticket for queue in queues_of(key) for ticket, _ in self.members(queue))
        return min(max([kept, *tickets]), LARGEST_TICKET)

    def waiting(self, key: bytes, value: bytes, entries: Iterable[bytes] = ()) -> int:
        """Return the number of waiters of a key.

        An offer in the key's value or in the readers' entries counts as a waiter.
        """
        members = {member for queue in queues_of(key) for _, member in self.members(queue)}
        if value.startswith(OFFER):
            members.add(parts_of(value.removeprefix(OFFER))[1])
        return len(members) + sum(entry.startswith(OFFER) for entry in entries)

    def notify_first(self, keys: Keys, queue: bytes, limit: int = 0) -> None:
        """Notify the first member of a queue that it is now the first.

        In the queue of a semaphore, each slot has a first member: the first that accepts the slot.
        The first members of all slots up to `limit` are notified. For a lock, `limit` is 0.
        """
        base = queue.removeprefix(SLOT_QUEUE_KEYS)
        key = queue.removeprefix(READER_QUEUE_KEYS) if base == queue else slot_key(base, 1)
        slot = 0
        while slot <= limit and (first := self.taker(queue, slot)) is not None:
            if not notify(keys, first, -1, key):
                self.remove(queue, first)
            elif limit_of(first):
                slot = limit_of(first) + 1
            else:
                return

    def notify_second(self, keys: Keys, queue: bytes) -> None:
        """Notify the second waiter of the time at which it may get the lock; see queue.lua."""
        key = queue.removeprefix(READER_QUEUE_KEYS)
        left, before = keys.pttl(key), 2 if keys.get(key) == READERS else 1
        if left < 0:
            return
        while (second := self.taker(queue, 0, 1)) is not None and not notify(
            keys, second, -left - before * grace_of(second), key
        ):
            self.remove(queue, second)

    def notify_waiters(self, keys: Keys, key: bytes) -> None:
        """Notify the first waiters in each queue of a key, because the key may now expire earlier.

        In the queue of a lock, the second waiter is notified, too.
        """
        slot = slot_in(key)
        for queue in queues_of(key):
            self.notify_first(keys, queue, 0 if queue == key or slot is None else slot[1])
            if queue == key:
                self.notify_second(keys, key)

    def offer(self, keys: Keys, key: bytes) -> bool:
        """Offer a key to all waiting readers. If no reader waits, offer it to the first waiter.

        Return False if no waiter is connected. The key is unchanged in this case.
        """
        return (
            self.offer_readers(keys, key)
            or self._offer_lock(keys, key)
            or self._offer_slot(keys, key)
        )

    def offer_readers(self, keys: Keys, key: bytes) -> bool:
        """Offer a key to all waiting readers, and empty their queue.

        Return False if no waiting reader is connected.
        """
        queue = READER_QUEUE_KEYS + key
        offered = False
        for _, member in self.members(queue):
            self.remove(queue, member)
            if notify(keys, member, 0, key):
                keys.keep_entry(key, offer_to_reader(member), grace_of(member) / 1000)
                offered = True
        if offered:
            self.notify_first(keys, key)
        return offered

    def offer_after_readers(self, keys: Keys, key: bytes) -> bool:
        """Offer a key that readers held. Waiting writers come before waiting readers.

        Return False if no waiter is connected.
        """
        return (
            self._offer_lock(keys, key)
            or self._offer_slot(keys, key)
            or self.offer_readers(keys, key)
        )

    def writer_waits(self, keys: Keys, key: bytes) -> bool:
        """Return True if a connected writer waits. Remove the disconnected writers before it."""
        while (first := self.taker(key, 0)) is not None:
            if not is_gone(keys, first):
                return True
            self.remove(key, first)
        return False

    def announce_writer(self, keys: Keys, key: bytes, entries: Iterable[bytes]) -> None:
        """Notify the processes with these entries of readers that a writer waits."""
        found = map(_READING.fullmatch, entries)
        for manager in dict.fromkeys(entry[1] for entry in found if entry is not None):
            keys.publish(OWN_KEYS + manager, b"-1 %b %b" % (manager, key))

    def leave_readers(self, keys: Keys, key: bytes, entry: bytes) -> bool:
        """Remove a reader's entry. If no entry is left, offer the key.

        Return True if the entry existed.
        """
        entries = keys.entries(key)
        last = max(entries, key=lambda entry: (entries[entry], entry), default=None)
        removed = keys.remove_entry(key, entry)
        if keys.get(key) is None:
            self.offer_after_readers(keys, key)
        elif entry == last:
            self._notify_expiry(keys, key)
        return removed

    def _notify_expiry(self, keys: Keys, key: bytes) -> None:
        while (first := self.taker(key, 0)) is not None:
            if notify(keys, first, keys.pttl(key) + grace_of(first), key):
                return
            self.remove(key, first)

    def _offer_lock(self, keys: Keys, key: bytes) -> bool:
        while members := self.members(key):
            ticket, member = members[0]
            heard = notify(keys, member, 0, key)
            self.remove(key, member)
            if heard:
                keys.keep(key, offer_value(ticket, member), max(1, grace_of(member)) / 1000)
                for _, second in members[1:]:
                    if notify(keys, second, grace_of(member), key):
                        break
                    self.remove(key, second)
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
                    notify(keys, second, grace_of(member), key)
                return True
        return False

    def _share_out(self, keys: Keys, slot: tuple[bytes, int], ticket: int, member: bytes) -> bool:
        """Offer a slot to one more member, and distribute all offered slots again, as in queue.lua.

        Return False if the member's process is gone.
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
        highest = max(offers[-1][0], *(held for held, _ in self.members(SLOT_QUEUE_KEYS + name)), 0)
        if any(limit_of(offer[1]) < at for offer, at in zip(offers, slots, strict=True)):
            offers, slots = [new], [number]
        shared = list(zip(offers, slots, strict=True))
        own_slot = next(at for offer, at in shared if offer is new)
        if not notify(keys, member, 0, slot_key(name, own_slot), highest):
            return False
        for (own, other, before, left), at in shared:
            if before != at:
                keys.keep(slot_key(name, at), offer_value(own, other), max(1, left) / 1000)
                if other != member:
                    notify(keys, other, 0, slot_key(name, at), highest)
        return True

    def step_out(self, keys: Keys, queue: bytes, member: bytes) -> None:
        """Remove a member. Notify the members that are now the first or the second."""
        limit = limit_of(member)
        first, rank = self.taker(queue, limit), self.rank(queue, member)
        if not self.remove(queue, member):
            return
        if first == member:
            self.notify_first(keys, queue, limit)
        if not limit and (first == member or rank == 1):
            self.notify_second(keys, queue)

    def leave(self, keys: Keys, key: bytes, member: bytes) -> None:
        """Remove a member that no longer waits. An offer to this member goes to the next waiter."""
        queue, value = queue_for(member, key), keys.get(key)
        if is_reader(member):
            self.step_out(keys, queue, member)
            if offer_to_reader(member) in keys.entries(key):
                self.leave_readers(keys, key, offer_to_reader(member))
        elif is_offer_to(value or b"", member):
            self.remove(queue, member)
            self.give_back(keys, key)
        else:
            self.step_out(keys, queue, member)
            if value in (None, READERS) and self.taker(key, 0) is None:
                self.offer_readers(keys, key)

    def give_back(self, keys: Keys, key: bytes) -> None:
        """Offer a key to the next waiter. If no waiter is connected, delete the key."""
        if not self.offer(keys, key):
            keys.remove(key)

    def wait_again(self, keys: Keys, key: bytes, before: bytes, member: bytes) -> None:
        """Put a waiter for a semaphore into its queue again, if `member` replaced its offer.

        `before` is the value of the key until then.
        """
        claim = before.removeprefix(OFFER)
        _, other = parts_of(claim)
        if before.startswith(OFFER) and other != member and limit_of(other):
            # The displaced member is in the queue of all slots, perhaps unlike the other member.
            slots = queue_for(other, key)
            self.add(slots, claim, max(self.left(slots) / 1000, _DISPLACED_LIFE))
            if slots != queue_for(member, key):
                self.notify_first(keys, slots, limit_of(other))

    def served(self, keys: Keys, key: bytes, claim: bytes, before: bytes = b"") -> None:
        """Remove the member of a claim, because it has the key now. Notify the next member.

        If a lock was offered to the member, the offer has notified the next member. A waiter for a
        semaphore whose offer is replaced enters its queue again. All other slots that were offered
        to the served member go to the next members. An empty claim, as in a first attempt, has no
        effect. `before` is the value of the key before the grant.
        """
        _, member = parts_of(claim)
        if not member:
            return
        queue = queue_for(member, key)
        self.remove(queue, member)
        own_offer = is_offer_to(before, member)
        self.wait_again(keys, key, before, member)
        for number in range(1, limit_of(member) + 1):
            slot = slot_key(queue.removeprefix(SLOT_QUEUE_KEYS), number)
            if is_offer_to(keys.get(slot) or b"", member):
                self.give_back(keys, slot)
        if not own_offer or limit_of(member):
            self.notify_first(keys, queue, limit_of(member))
