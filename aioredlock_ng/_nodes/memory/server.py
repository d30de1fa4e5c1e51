"""A lock server in memory: the effect of each script, written in Python."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.fencing import LATEST_US
from aioredlock_ng._core.marker import Trust, read_marker
from aioredlock_ng._core.over import over_mark
from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._nodes.memory.keyspace import Writing
from aioredlock_ng._nodes.memory.members import admits
from aioredlock_ng._nodes.memory.standing import StandingServer, as_bytes
from aioredlock_ng._scripts.kinds import MARKER_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.marker import Reading
    from aioredlock_ng._core.votes import Raw
    from aioredlock_ng._nodes.memory.keyspace import Connection
    from aioredlock_ng._scripts import Command

__all__ = ["MemoryServer"]


class MemoryServer(StandingServer):
    """One server that lives in this process. Several connections may share it.

    A method `_name` does what the script of that name does, and returns what the script returns.

    Args:
        address: Its name in messages.
        clock: Returns the seconds by which its keys expire; None means the running loop's clock.

    Attributes:
        refuses: If set, every command is refused with these words.
    """

    def __init__(self, address: str = "memory", clock: Callable[[], float] | None = None) -> None:
        super().__init__(address, clock)
        self.refuses: str | None = None

    def execute(self, command: Command, by: Connection) -> Raw | Refusal:
        """Run a script, and return its reply as the wire would carry it."""
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
        token, ttl, vouch, fence, claim, tell, *slots = map(as_bytes, command.args)
        refusal = self._take(keys, claim)
        if refusal is not None:
            return refusal
        if vouch:
            reading = self._read_marker(vouch)
            distrusted = reading.trust in (Trust.NONE, Trust.FOREIGN, Trust.EXCESSIVE)
            if distrusted or reading.guard_ms < int(vouch.partition(b":")[2]):
                return [-1, -1]
            if reading.ready_ms > reading.node_ms:
                return [-1, reading.ready_ms - reading.node_ms]
            if reading.trust is not Trust.TRUSTED:
                self.set(MARKER_KEY, b"%b:%d" % (reading.run_id, reading.guard_ms), math.inf, by)
        self._hold(keys, token, ttl, claim, by)
        if not fence:
            return 1
        before = max(self.counters.get(slot, int(fence) - 1) for slot in slots)
        reply = self._store(int(fence), slots, granted=1)
        return [2, before] if tell and reply == 1 else reply

    def _take(self, keys: Sequence[bytes], claim: bytes) -> list[int] | None:
        """Return the refusal; None if the keys can be taken."""
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
        """Store a fence above all counters, or return the highest counter."""
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
        token, ttl, vouch, fence, *slots = map(as_bytes, command.args)
        holders = [self.get(key) for key in keys]
        if any(holder not in (None, token) for holder in holders):
            return 0
        if None in holders:
            reading = self._read_marker(vouch)
            if reading.trust is not Trust.TRUSTED or reading.guard_ms < int(
                vouch.partition(b":")[2]
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

    def _marker(self, command: Command, by: Connection) -> Raw | Refusal:
        become, expected, read_ms, vouch, nonce = map(as_bytes, command.args)
        vouch = self._own(vouch)
        now, marker = self._now_ms(), self.get(MARKER_KEY) or b""
        self._track(MARKER_KEY, by)
        if become == b"read" or marker != expected or abs(now - int(read_ms)) > 1000:
            return [marker, now, vouch]
        parts = marker.split(b":")
        if become == b"trusted" and len(parts) == 3 and int(parts[2]) > now:
            return [marker, now, vouch]
        marker = vouch
        if become != b"trusted":
            marker += b":%d" % (now + int(vouch.partition(b":")[2]) + 1000)
        if become == b"founding":
            marker += b":" + nonce
        self.set(MARKER_KEY, marker, math.inf, by)
        self._track(MARKER_KEY, by)
        return [marker, now, vouch]

    def _own(self, vouch: bytes) -> bytes:
        """Return `vouch` as a connection sends it: a placeholder becomes the run id of this server.

        The run id of an earlier process is not replaced.
        """
        named, _, guard = vouch.partition(b":")
        return vouch if named in self._past else b"%b:%b" % (self.run_id, guard)

    def _read_marker(self, vouch: bytes) -> Reading:
        marker = self.get(MARKER_KEY) or b""
        return read_marker(marker, self._now_ms(), self._own(vouch), 0.0, 0.0)

    def _now_ms(self) -> int:
        return int((self._clock() + self.skew) * 1000)

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
        """Read and track the keys.

        Return the number of keys if each key holds its token, else a list of states.
        """
        answers = []
        for key, token in zip(keys, tokens, strict=True):
            holder = self.get(key)
            self._track(key, by)
            answers.append(1 if holder == token else 0 if holder is None else -1)
        return len(answers) if set(answers) == {1} else answers

    def _release(self, command: Command, by: Connection) -> Raw | Refusal:
        token = command.args[0]
        n = int(command.args[1]) if len(command.args) > 1 else len(command.keys)
        ours = [key for key in command.keys[:n] if self.get(key) == token]
        for key, label_key in zip(command.keys[:n], command.keys[n:], strict=False):
            if key in ours or (self.get(label_key) or b"").startswith(as_bytes(token)[:16] + b" "):
                self.delete(label_key, by)
        for key in ours:
            if not self.queues.offer(Writing(self, by), key):
                self.delete(key, by)
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
                answer[2:] = [*(answer[2:] or [b""]), self.queues.waiting(key, answer[1])]
        return answers

    def _force_release(self, command: Command, by: Connection) -> Raw | Refusal:
        keys, last = command.keys, int(command.args[0]) + 2
        any_key, tokens = command.args[1], set(map(as_bytes, command.args[2:last]))
        fenced = len(command.args) > last
        if fenced:
            keys = keys[:-1]
        doomed = [key for key in keys if self.get(key) in tokens]
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
            if not self.queues.offer(Writing(self, by), key):
                self.delete(key, by)
        return len(doomed)
