"""The scripts for readers, written in Python for a lock server in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.fencing import LATEST_US, mark_of
from aioredlock_ng._core.marker import Trust
from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.queue_formats import is_offer
from aioredlock_ng._core.readers import READER_QUEUE_KEYS, READERS, offer_to_reader
from aioredlock_ng._nodes.memory.keyspace import Writing
from aioredlock_ng._nodes.memory.members import grace_of
from aioredlock_ng._nodes.memory.queue_scripts import as_bytes
from aioredlock_ng._nodes.memory.trusting import FLOOR, TrustingServer

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Raw, Refusal
    from aioredlock_ng._nodes.memory.keyspace import Connection
    from aioredlock_ng._scripts import Command

__all__ = ["ReadingServer"]


class ReadingServer(TrustingServer):
    """A lock server with the scripts for readers.

    For each script there is a method with its name and a leading underscore. The method has the
    effect of the script, and returns the same reply.
    """

    def _acquire_read(self, command: Command, by: Connection) -> Raw | Refusal:
        key, own, queues = command.keys[0], Writing(self, by), self.queues
        entry, ttl, own_marker, slot, claim = map(as_bytes, command.args)
        member = claim.partition(b":")[2]
        value = self.get(key)
        taken = value not in (None, READERS)
        if not taken:
            offered = member and offer_to_reader(member) in self.entries(key)
            may_enter = member and (value is None or offered)
            taken = not may_enter and queues.writer_waits(own, key)
        if taken:
            return [0, self.pttl(key), 1, queues.highest(key, value)]
        if own_marker and (distrusted := self._distrusted(own_marker, by)) is not None:
            return distrusted
        self.keep_entry(key, entry, int(ttl) / 1000, by)
        if member:
            self.remove_entry(key, offer_to_reader(member), by)
            queues.remove(READER_QUEUE_KEYS + key, member)
            if value is None:
                queues.offer_readers(own, key)
            if queues.writer_waits(own, key):
                queues.announce_writer(own, key, [entry])
        if not slot:
            return 1
        counter = max(self.counters.get(slot, 0), self.counters.get(FLOOR, 0))
        if counter <= LATEST_US:
            counter = self.counters[slot] = mark_of(counter)
        return [1, counter]

    def _confirm_read(self, command: Command, by: Connection) -> Raw | Refusal:
        entry, fence, slot = map(as_bytes, command.args)
        if entry not in self.entries(command.keys[0]):
            return [0, 0]
        counter = self.counters.get(slot, 0)
        if counter > int(fence):
            return [0, counter]
        self.counters[slot] = int(fence)
        return 1

    def _extend_read(self, command: Command, by: Connection) -> Raw | Refusal:
        keys, ttl, answers = command.keys[:-1], int(command.args[0]) / 1000, []
        for at, key in enumerate(keys):
            entry, fence, slot = map(as_bytes, command.args[3 * at + 1 : 3 * at + 4])
            value = self.get(key)
            if value == entry:
                self.keep_entry(key, entry, max(ttl, self.pttl(key) / 1000), by)
                self.delete(owner_key(key), by)
                if fence:
                    self.counters[slot] = max(int(fence), self.counters.get(slot, 0))
                self.queues.offer_readers(Writing(self, by), key)
                answers.append(1)
            elif entry in self.entries(key):
                self.keep_entry(key, entry, ttl, by)
                answers.append(1)
            else:
                answers.append(-1 if _is_held(value) else 0)
            self._track(key, by)
        return len(answers) if set(answers) == {1} else answers

    def _watch_read(self, command: Command, by: Connection) -> Raw | Refusal:
        n = len(command.keys) if len(command.args) <= len(command.keys) else len(command.keys) // 2
        answers, labels = [], command.args[n:]
        for at, key in enumerate(command.keys[:n]):
            value, entry = self.get(key), as_bytes(command.args[at])
            ours = value == entry or entry in self.entries(key)
            answers.append(1 if ours else -1 if _is_held(value) else 0)
            if ours and labels:
                life = int(labels[2 * at]) / 1000
                self.set(command.keys[n + at], as_bytes(labels[2 * at + 1]), life, by)
            self._track(key, by)
        return len(answers) if set(answers) == {1} else answers

    def _repair_read(self, command: Command, by: Connection) -> Raw | Refusal:
        key = command.keys[0]
        entry, ttl, own_marker, fence, slot = map(as_bytes, command.args)
        value, counter = self.get(key), self.counters.get(slot, 0)
        present = value == entry or entry in self.entries(key)
        if _is_held(value) and not present:
            return 0
        if not present:
            reading = self._read_marker(own_marker)
            guard_ms = int(own_marker.partition(b":")[2])
            if reading.trust is not Trust.TRUSTED or reading.guard_ms < guard_ms:
                return -1
            if counter > int(fence):
                return 0
            self.keep_entry(key, entry, int(ttl) / 1000, by)
        self.counters[slot] = max(int(fence), counter)
        self._track(key, by)
        return 1

    def _release_read(self, command: Command, by: Connection) -> Raw | Refusal:
        key, entry, own, freed = command.keys[0], as_bytes(command.args[0]), Writing(self, by), 0
        value = self.get(key)
        if value == READERS:
            freed = int(self.queues.leave_readers(own, key, entry))
        elif value == entry:
            self.delete(owner_key(key), by)
            self.queues.give_back(own, key)
            freed = 1
        for label_key in command.keys[1:]:
            self.delete(label_key, by)
        return freed

    def _stand_read(self, command: Command, by: Connection) -> Raw | Refusal:
        (claim, life), key, own = map(as_bytes, command.args), command.keys[0], Writing(self, by)
        member = claim.partition(b":")[2]
        queues, queue = self.queues, READER_QUEUE_KEYS + key
        self._track(key, by)

        def offered() -> bool:
            return offer_to_reader(member) in self.entries(key)

        if offered():
            return [0, 1, 0]
        queues.enter(own, queue, claim, int(life) / 1000)
        value = self.get(key)
        if value is None or (value == READERS and not queues.writer_waits(own, key)):
            # A key of readers must not be offered to a waiter for a slot.
            offer = queues.offer if value is None else queues.offer_readers
            if not offer(own, key):
                return [0, 1, queues.rank(queue, member)]
            if offered():
                return [0, 1, 0]
            value = self.get(key)
        rank = queues.rank(queue, member)
        left = -1 if value in (None, READERS) else self.pttl(key)
        if left < 0 or rank > 1:
            return [-1, 1, rank]
        return [left + max(rank, 0) * grace_of(member), 1, rank]


def _is_held(value: bytes | None) -> bool:
    """Return True if the value of a key keeps readers out, and is no mere offer to a writer."""
    return value not in (None, READERS) and not is_offer(value or b"")
