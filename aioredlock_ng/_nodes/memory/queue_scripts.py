"""The scripts that add waiters to queues and remove them, in Python for a server in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.owners import is_label_of, owner_key
from aioredlock_ng._core.queue_formats import OFFER
from aioredlock_ng._core.readers import READERS
from aioredlock_ng._nodes.memory.keyspace import Keyspace, Writing
from aioredlock_ng._nodes.memory.members import (
    admits,
    grace_of,
    is_offer_to,
    limit_of,
    slot_queue_of,
    takes,
)

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Raw, Refusal
    from aioredlock_ng._nodes.memory.keyspace import Connection
    from aioredlock_ng._scripts import Command

__all__ = ["StandingServer", "as_bytes"]


_STEP = 20
"""Milliseconds by which each waiter refreshes later than the waiter before it, after an offer."""

_MOST_OFFERS = 32
"""The largest number of slots that one call of `_stand_slots` offers."""


class StandingServer(Keyspace):
    """A lock server with the scripts for queues.

    For each script there is a method with its name and a leading underscore. The method has the
    effect of the script, and returns the same reply.
    """

    _tracks = False

    def _stand(self, command: Command, by: Connection) -> Raw | Refusal:
        (claim, life, kept), keys, own = (
            map(as_bytes, command.args),
            command.keys,
            Writing(self, by),
        )
        member = claim.partition(b":")[2]
        values = [self.get(key) for key in keys]
        place = next(
            (
                at
                for at, value in enumerate(values)
                if value is not None and not admits(value, claim)
            ),
            len(keys) - 1,
        )
        key, queues = keys[place], self.queues
        # A server tracks every key that the script reads, until the script writes the key.
        for read in keys:
            self._track(read, by)
        is_new = queues.enter(own, key, claim, int(life) / 1000)
        if is_new and values[place] == READERS:
            queues.announce_writer(own, key, self.entries(key))
        if not is_new and len(keys) == 1 and queues.rank(key, member) == 0:
            queues.take_back(own, key, claim)
        for before, value in zip(keys[:place], values, strict=False):
            is_kept = value == OFFER + claim and self.pttl(before) > grace_of(member)
            if not is_kept and int(kept) > 0:
                own.keep(before, OFFER + claim, int(kept) / 1000)
                queues.wait_again(own, before, value or b"", member)
            queues.step_out(own, before, member)
        for behind in keys[place + 1 :]:
            queues.leave(own, behind, member)
        if self.get(key) is None:
            queues.offer(own, key)
        value = self.get(key)
        if is_offer_to(value or b"", member):
            return [0, place + 1, 0]
        rank = queues.rank(key, member)
        if value is None or admits(value, claim):
            return [0, place + 1, rank]
        left = self.pttl(key)
        if rank == 0 and not value.startswith(OFFER):
            queues.notify_second(own, key)
        if left < 0 or (rank > 1 and not value.startswith(OFFER)):
            return [-1, place + 1, rank]
        label = self.get(owner_key(key)) or b""
        if rank == 0 and not value.startswith(OFFER) and is_label_of(label, value):
            return [left, place + 1, 0, 1]
        grace = grace_of(member)
        step = min(grace, _STEP) if value.startswith(OFFER) else grace
        more = (value == READERS) * grace + max(rank, 0) * step
        return [left + more, place + 1, rank]

    def _stand_slots(self, command: Command, by: Connection) -> Raw | Refusal:
        (claim, life), keys, own = map(as_bytes, command.args), command.keys, Writing(self, by)
        member = claim.partition(b":")[2]
        for key in keys:
            self._track(key, by)
        queues, queue = self.queues, slot_queue_of(keys[0])

        def offered() -> bool:
            return any(is_offer_to(self.get(key) or b"", member) for key in keys)

        offers_left = _MOST_OFFERS
        if not offered():
            queues.enter(own, queue, claim, int(life) / 1000)
            for key in keys:
                if offers_left and self.get(key) is None:
                    offers_left -= queues.offer(own, key)
            if not offers_left:
                queues.notify_first(own, queue, len(keys))
        values = [self.get(key) for key in keys]
        rank, lowest = 0 if offered() else queues.rank(queue, member), 1
        # Free slots without an offer are for the next waiters.
        is_reserved = not offers_left and queues.rank(queue, member) >= 0
        slots = [
            at
            for at, value in enumerate(values, 1)
            if (not is_reserved if value is None else admits(value, claim))
        ]
        if rank > 0:
            head = queues.taker(queue, 0) or b""
            if not takes(head, len(keys)):
                lowest = limit_of(head) + 1
            before = queues.members(queue)[:rank]
            rivals = sum(takes(other, len(keys)) for _, other in before)
            rank = rivals if rivals < 2 else rank
        if slots:
            return [0, rank, *slots[:8]]
        lives = ((self.pttl(key), slot) for slot, key in enumerate(keys, 1) if slot >= lowest)
        left, slot = min((life for life in lives if life[0] >= 0), default=(-1, 0))
        if rank > 1 or left < 0:
            return [-1, rank]
        return [left + max(rank, 0) * grace_of(member), rank, slot]

    def _leave(self, command: Command, by: Connection) -> Raw | Refusal:
        member, keys = as_bytes(command.args[0]), command.keys
        # The slots of a semaphore share one queue, so the member leaves that queue once.
        values = list(map(self.get, keys)) if limit_of(member) and slot_queue_of(keys[0]) else []
        for at, key in enumerate(keys):
            if not at or not values or is_offer_to(values[at] or b"", member):
                self.queues.leave(Writing(self, by), key, member)
        return 1

    def _track(self, key: bytes, by: Connection) -> None:
        if self._tracks:
            self.track(key, by)


def as_bytes(value: bytes | int) -> bytes:
    """Return an argument of a command as the bytes that a real server would get."""
    return value if isinstance(value, bytes) else str(value).encode()
