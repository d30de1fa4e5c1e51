"""The queues of an in-memory server: the members and the expiry of each queue."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng._core.queue_formats import OFFER
from aioredlock_ng._core.tickets import LARGEST_TICKET
from aioredlock_ng._core.waking import MOST_AHEAD
from aioredlock_ng._nodes.memory.members import parts_of, takes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Keys", "QueueStore", "is_gone", "notify"]

_NOTIFIED = re.compile(rb"([0-9a-f]+):")


class Keys(Protocol):
    """The methods of a server by which its queues read and change keys."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if the key does not exist."""

    def keep(self, key: bytes, value: bytes, ttl: float) -> None:
        """Set a key for `ttl` seconds."""

    def remove(self, key: bytes) -> None:
        """Delete a key, if it exists."""

    def entries(self, key: bytes) -> dict[bytes, float]:
        """Return the entries of readers, each with its remaining seconds."""

    def keep_entry(self, key: bytes, entry: bytes, ttl: float) -> None:
        """Set an entry of a reader for `ttl` seconds."""

    def remove_entry(self, key: bytes, entry: bytes) -> bool:
        """Delete an entry of a reader. Return True if it existed."""

    def pttl(self, key: bytes) -> int:
        """Return the remaining milliseconds of a key."""

    def publish(self, channel: bytes, message: bytes) -> int:
        """Send a message, and return the number of connections that received it."""

    def listeners(self, channel: bytes) -> int:
        """Return how many connections receive the messages of a channel."""


class QueueStore:
    """The queues of all keys of a server.

    The name of a lock's queue is the lock's key. The queues of semaphores and of readers have the
    same names as in the scripts.

    Args:
        clock: The clock of the server, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queues: dict[bytes, tuple[dict[bytes, int], float]] = {}

    def clear(self) -> None:
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
        """Add the member of a claim to a queue. The queue expires `life` seconds from now."""
        ticket, member = parts_of(claim)
        members = {member: ticket for ticket, member in self.members(queue)}
        members[member] = ticket
        self._queues[queue] = members, self._clock() + life

    def enter(self, keys: Keys, queue: bytes, claim: bytes, life: float) -> bool:
        """Add a member, and remove the members just before it whose processes are gone.

        The queue then lives for at least `life` seconds, and twice `life` longer for each member
        before the added one. At most `MOST_AHEAD` of these members count.

        Return True if the member was not in the queue before.
        """
        is_new = self.rank(queue, parts_of(claim)[1]) < 0
        left = self.left(queue) / 1000
        self.add(queue, claim, life)
        rank = self.rank(queue, parts_of(claim)[1])
        while rank > 0 and is_gone(keys, self.members(queue)[rank - 1][1]):
            rank -= 1
            self.remove(queue, self.members(queue)[rank][1])
        self.add(queue, claim, max(left, life * (1 + 2 * min(max(rank, 0), MOST_AHEAD))))
        return is_new

    def take_back(self, keys: Keys, key: bytes, claim: bytes) -> None:
        """Delete the offer of a key to an earlier member whose process is gone."""
        value, (ticket, own) = keys.get(key) or b"", parts_of(claim)
        offered, member = parts_of(value.removeprefix(OFFER))
        is_earlier = value.startswith(OFFER) and offered < ticket and member != own
        if is_earlier and is_gone(keys, member):
            keys.remove(key)

    def remove(self, queue: bytes, member: bytes) -> bool:
        """Remove a member from a queue. Return False if the queue lacks the member."""
        members, until = self._queues.get(queue, ({}, 0.0))
        if members.pop(member, None) is None or until <= self._clock():
            return False
        if not members:
            del self._queues[queue]
        return True

    def rank(self, queue: bytes, member: bytes) -> int:
        """Return the number of members before this member; -1 if it is not in the queue."""
        members = enumerate(self.members(queue))
        return next((rank for rank, (_, who) in members if who == member), -1)

    def taker(self, queue: bytes, slot: int, at: int = 0) -> bytes | None:
        """Return the first member at place `at` or later that accepts this slot, or None."""
        members = (member for _, member in self.members(queue)[at:])
        return next((member for member in members if takes(member, slot)), None)


def notify(keys: Keys, member: bytes, time: int, key: bytes, highest: int | None = None) -> bool:
    """Send a message to a member. Return False if its process is not connected."""
    ticket = b"" if highest is None else b":%d" % min(highest, LARGEST_TICKET)
    text = b"%d%b %b %b" % (time, ticket, member, key)
    manager = _NOTIFIED.match(member)
    return manager is None or keys.publish(OWN_KEYS + manager[1], text) > 0


def is_gone(keys: Keys, member: bytes) -> bool:
    """Return True if the process of a member is certainly not connected."""
    manager = _NOTIFIED.match(member)
    return manager is not None and keys.listeners(OWN_KEYS + manager[1]) == 0
