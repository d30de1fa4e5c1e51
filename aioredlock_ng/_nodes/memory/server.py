"""A lock server in memory: the effect of each script, written in Python."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.fencing import LATEST_US
from aioredlock_ng._core.keys import message_channel
from aioredlock_ng._core.marker import Trust
from aioredlock_ng._core.over_mark import over_mark
from aioredlock_ng._core.owners import is_label_of, owner_key
from aioredlock_ng._core.queue_formats import OFFER, is_offer
from aioredlock_ng._core.readers import READERS
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._nodes.memory.keyspace import Writing
from aioredlock_ng._nodes.memory.members import admits
from aioredlock_ng._nodes.memory.queue_scripts import as_bytes
from aioredlock_ng._nodes.memory.reader_scripts import ReadingServer
from aioredlock_ng._scripts.exclusive_kinds import MARKER_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.votes import Raw
    from aioredlock_ng._nodes.memory.keyspace import Connection
    from aioredlock_ng._scripts import Command

__all__ = ["MemoryServer"]


class MemoryServer(ReadingServer):
    """One server in this process, which several connections may share.

    For each script there is a method with its name and a leading underscore. The method has the
    effect of the script, and returns the same reply.

    Args:
        address: The server's name in messages.
        clock: Returns the current time of the server in seconds. By default, the clock of the
            running event loop.

    Attributes:
        refuses: If set, every command is refused with these words.
    """

    def __init__(self, address: str = "memory", clock: Callable[[], float] | None = None) -> None:
        super().__init__(address, clock)
        self.refuses: str | None = None

    def execute(self, command: Command, by: Connection) -> Raw | Refusal:
        """Run a script, and return its reply as a real server would send it."""
        if self.refuses is not None:
            return Refusal(self.refuses)
        self._tracks = command.tracked
        reply: Raw | Refusal = getattr(self, f"_{command.script.name}")(command, by)
        return reply

    def _acquire(self, command: Command, by: Connection) -> Raw | Refusal:
        token, ttl, *claim = map(as_bytes, command.args)
        refusal = self._take(command.keys, claim[0] if claim else b"")
        if refusal is not None:
            return refusal
        self._hold(command.keys, token, ttl, claim[0] if claim else b"", by)
        return 1

    def _acquire_guarded(self, command: Command, by: Connection) -> Raw | Refusal:
        keys = command.keys[:-2]
        token, ttl, own_marker, fence, claim, tell, *slots = map(as_bytes, command.args)
        distrusted = self._distrusted(own_marker, by) if own_marker else None
        refusal = self._take(keys, claim) or distrusted
        if refusal is not None:
            return refusal
        self._hold(keys, token, ttl, claim, by)
        if not fence:
            return 1
        before = max(self.counters.get(slot, int(fence) - 1) for slot in slots)
        reply = self._store(int(fence), slots, granted=1)
        return [2, before] if tell and reply == 1 else reply

    def _take(self, keys: Sequence[bytes], claim: bytes) -> list[int] | None:
        """Return the refusal of an acquire; None if the acquire may set the keys."""
        for place, key in enumerate(keys, 1):
            value = self.get(key)
            if value is not None and not admits(value, claim):
                highest = max(self.queues.highest(key, self.get(key)) for key in keys)
                return [0, self.pttl(key), place, highest]
        return None

    def _hold(
        self, keys: Sequence[bytes], token: bytes, ttl: bytes, claim: bytes, by: Connection
    ) -> None:
        before = [self.get(key) or b"" for key in keys]
        for key in keys:
            self.set(key, token, int(ttl) / 1000, by)
        for key, value in zip(keys, before, strict=True):
            self.queues.served(Writing(self, by), key, claim, value)

    def _confirm(self, command: Command, by: Connection) -> Raw | Refusal:
        token, fence, *slots = map(as_bytes, command.args)
        if any(self.get(key) != token for key in command.keys[:-1]):
            return [0, 0]
        return self._store(int(fence), slots, granted=0)

    def _store(self, fence: int, slots: Sequence[bytes], granted: int) -> Raw | Refusal:
        """Raise each counter below the fence to the fence.

        Return 1 if all counters were below the fence. Otherwise return a list: `granted`, and the
        highest of the other counters.
        """
        highest = 0
        for slot in slots:
            counter = self.counters.get(slot, 0)
            if fence > counter:
                self.counters[slot] = fence
            else:
                highest = max(highest, counter)
        return [granted, highest] if highest else 1

    def _repair(self, command: Command, by: Connection) -> Raw | Refusal:
        keys = command.keys[:-2]
        token, ttl, own_marker, fence, *slots = map(as_bytes, command.args)
        # A key that is reserved for waiters counts as missing.
        holders = [None if self._is_reserved(key) else self.get(key) for key in keys]
        if any(holder not in (None, token) for holder in holders):
            return 0
        if None in holders:
            reading = self._read_marker(own_marker)
            if reading.trust is not Trust.TRUSTED or reading.guard_ms < int(
                own_marker.partition(b":")[2]
            ):
                return -1
        for slot in slots:
            self.counters[slot] = max(int(fence), self.counters.get(slot, 0))
        if None in holders and any(self.counters[slot] > int(fence) for slot in slots):
            return 0
        for key, holder in zip(keys, holders, strict=True):
            if holder is None:
                self.set(key, token, int(ttl) / 1000, by)
            self._track(key, by)
        return 1

    def _is_reserved(self, key: bytes) -> bool:
        value = self.get(key)
        offers = self.entries(key) if value == READERS else (value or b"",)
        return all(map(is_offer, offers))

    def _marker(self, command: Command, by: Connection) -> Raw | Refusal:
        become, expected, read_ms, own_marker, nonce = map(as_bytes, command.args)
        own_marker = self._own(own_marker)
        now, marker = self._now_ms(), self.get(MARKER_KEY) or b""
        self._track(MARKER_KEY, by)
        if become == b"read" or marker != expected or abs(now - int(read_ms)) > 1000:
            return [marker, now, own_marker]
        parts = marker.split(b":")
        if become == b"trusted" and len(parts) == 3 and int(parts[2]) > now:
            return [marker, now, own_marker]
        marker = own_marker
        if become != b"trusted":
            marker += b":%d" % (now + int(own_marker.partition(b":")[2]) + 1000)
        if become == b"founding":
            marker += b":" + nonce
        self.set(MARKER_KEY, marker, math.inf, by)
        if become == b"trusted":
            self._store_floor()
        self._track(MARKER_KEY, by)
        return [marker, now, own_marker]

    def _extend(self, command: Command, by: Connection) -> Raw | Refusal:
        ttl, *tokens = command.args
        for key, token in zip(command.keys, tokens, strict=True):
            if self.get(key) == token:
                self.set(key, as_bytes(token), int(ttl) / 1000, by)
        return self._whose(command.keys, tokens, by)

    def _watch(self, command: Command, by: Connection) -> Raw | Refusal:
        n = len(command.keys) if len(command.args) <= len(command.keys) else len(command.keys) // 2
        tokens, labels = command.args[:n], command.args[n:]
        for at, key in enumerate(command.keys[n:]):
            if self.get(command.keys[at]) == tokens[at]:
                self.set(key, as_bytes(labels[2 * at + 1]), int(labels[2 * at]) / 1000, by)
        return self._whose(command.keys[:n], tokens, by)

    def _whose(
        self, keys: Sequence[bytes], tokens: Sequence[bytes | int], by: Connection
    ) -> Raw | Refusal:
        """Return the number of keys if each key holds its token, else a list with a state per key.

        The state is 1 for the key's own token, and -1 for another token. The state is 0 if the key
        is missing or reserved for a waiter, or if readers hold it. If the command is tracked, the
        connection `by` is notified of the next change of each key.
        """
        answers = []
        for key, token in zip(keys, tokens, strict=True):
            holder = self.get(key)
            self._track(key, by)
            missing = holder in (None, READERS) or is_offer(holder)
            answers.append(1 if holder == token else 0 if missing else -1)
        return len(answers) if set(answers) == {1} else answers

    def _release(self, command: Command, by: Connection) -> Raw | Refusal:
        token = command.args[0]
        n = int(command.args[1]) if len(command.args) > 1 else len(command.keys)
        ours = [key for key in command.keys[:n] if self.get(key) == token]
        for key, label_key in zip(command.keys[:n], command.keys[n:], strict=False):
            if key in ours or is_label_of(self.get(label_key) or b"", as_bytes(token)):
                self.delete(label_key, by)
        # A missing key is offered, too, but does not count in the reply.
        free = [key for key in command.keys[:n] if self.get(key) in (None, token)]
        offered = [key for key in free if self.queues.offer(Writing(self, by), key)]
        for key in ours:
            if key not in offered:
                self.delete(key, by)
        if n == 1 and offered and ours:
            return [1, self.queues.highest(offered[0], self.get(offered[0]))]
        return len(ours)

    def _retire(self, command: Command, by: Connection) -> Raw | Refusal:
        token, left, label = map(as_bytes, command.args)
        ours = [key for key in command.keys if self.get(key) == token]
        for key in ours:
            kept, remaining = int(left), self.pttl(key)
            if 0 <= remaining < kept:
                kept = max(remaining, 1)
            self.set(key, over_mark(token), kept / 1000, by)
            if label:
                self.set(owner_key(key), label, kept / 1000, by)
            self.queues.notify_waiters(Writing(self, by), key)
        for key in command.keys:
            if self.get(key) is None:
                self.queues.offer(Writing(self, by), key)
        return len(ours)

    def _inspect(self, command: Command, by: Connection) -> Raw | Refusal:
        n = int(command.args[0]) if command.args else len(command.keys)
        answers: list[list[Any]] = [
            [self.pttl(key), self.get(key) or b""] for key in command.keys[:n]
        ]
        for answer, label_key in zip(answers, command.keys[n:], strict=False):
            answer.append(self.get(label_key) or b"")
        if len(command.args) > 1:
            for answer, key in zip(answers, command.keys, strict=False):
                waiting = self.queues.waiting(key, answer[1], self.entries(key))
                answer[2:] = [*(answer[2:] or [b""]), waiting]
        for answer, key in zip(answers, command.keys, strict=False):
            if answer[1] == READERS:
                waiting = answer[3] if len(answer) > 3 else -1
                answer[2:] = [b"", waiting, self._readers(key, labelled=len(command.keys) > n)]
        return answers

    def _readers(self, key: bytes, *, labelled: bool) -> list[Any]:
        told: list[Any] = []
        for entry, left in sorted(self.entries(key).items(), key=lambda item: (item[1], item[0])):
            if not entry.startswith(OFFER):
                label = self.get(owner_key(key) + b":" + entry[:16]) if labelled else None
                told += (entry, int(left * 1000), label or b"")
        return told

    def _force_release(self, command: Command, by: Connection) -> Raw | Refusal:
        keys, last = command.keys, int(command.args[0]) + 2
        any_key, tokens = command.args[1], set(map(as_bytes, command.args[2:last]))
        fenced = len(command.args) > last
        if fenced:
            keys = keys[:-1]
        doomed = [key for key in keys if self.get(key) in tokens]
        ended = [(key, entry) for key in keys for entry in self.entries(key) if entry in tokens]
        if not int(any_key) and any(self.pttl(key) == -1 for key in doomed):
            return Refusal("NOTALOCK string -1")
        if fenced:
            fence, *slots = map(as_bytes, command.args[last:])
            counters = {slot: self.counters.get(slot, 0) for slot in slots}
            highest = max(
                [
                    int(fence),
                    *(counter + 1 for counter in counters.values() if counter <= LATEST_US),
                ]
            )
            self.counters.update(
                {slot: max(counter, highest) for slot, counter in counters.items()}
            )
        for key in doomed:
            self.delete(owner_key(key), by)
            self.queues.give_back(Writing(self, by), key)
        for key, entry in ended:
            self.queues.leave_readers(Writing(self, by), key, entry)
            manager = entry.partition(b":")[2]
            self.publish(message_channel(manager), b"0 %b %b" % (manager, key))
        return len(doomed) + len(ended)
