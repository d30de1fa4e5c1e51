"""The memory of a lock server without a server: the scripts' meaning in Python; several connections may share it."""

from __future__ import annotations

import asyncio
import math
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Protocol

from aioredlock_ng._core.fencing import LATEST_US
from aioredlock_ng._core.guard import Trust, read_marker
from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng._core.tickets import OFFER
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._nodes.memory_queue import Queues, admits, grace_of, is_offer_to
from aioredlock_ng._scripts.kinds import MARKER_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.guard import Reading
    from aioredlock_ng._core.votes import Raw
    from aioredlock_ng._scripts import Command

__all__ = ["Connection", "MemoryServer"]


class Connection(Protocol):
    """One manager's connection to it."""

    def connect(self) -> None:
        """The server is there again."""

    def disconnect(self) -> None:
        """The server is gone."""

    def told(self, keys: list[bytes] | None) -> None:
        """Tracked keys changed."""

    def notified(self, message: bytes) -> None:
        """A message was published on the channel of this connection."""


class MemoryServer:
    """The keys of one server that lives in this process.

    Args:
        address: Its name in messages.
        clock: Seconds in which its keys expire; None: the running loop's.

    Attributes:
        refuses: When set, every command is refused with these words, as a server would.
        counters: Its fence counters.
        up: False while nobody can connect.
        skew: Seconds by which its wall clock differs from `clock`.
    """

    def __init__(self, address: str = "memory", clock: Callable[[], float] | None = None) -> None:
        self.address = address
        self._clock = clock or _loop_time
        self.refuses: str | None = None
        self.up = True
        self.skew = 0.0
        self._past: list[bytes] = []
        self.counters: dict[bytes, int] = {}
        self._keys: dict[bytes, tuple[bytes, float]] = {}
        # In order of arrival: the order of a set of objects differs between processes, and a seed would repeat nothing.
        self._trackers: dict[bytes, dict[Connection, None]] = {}
        self._tracks = False
        self._nodes: dict[Connection, None] = {}
        self.queues = Queues(self._clock)
        self._subscribers: dict[bytes, dict[Connection, None]] = {}

    def get(self, key: bytes) -> bytes | None:
        """The value of a key that has not expired."""
        held = self._keys.get(key)
        if held is None:
            return None
        if held[1] <= self._clock():
            self.delete(key)
            return None
        return held[0]

    def set(self, key: bytes, value: bytes, ttl: float, by: Connection | None = None) -> None:
        """Set a key for `ttl` seconds, as any client could."""
        self._keys[key] = (value, self._clock() + ttl)
        if ttl < math.inf:
            asyncio.get_running_loop().call_later(ttl, self.get, key)
        self._tell(key, by)

    def delete(self, key: bytes, by: Connection | None = None) -> bool:
        """Delete a key, as any client could."""
        if self._keys.pop(key, None) is None:
            return False
        self._tell(key, by)
        return True

    def keys(self) -> list[bytes]:
        """The locks' keys that have not expired."""
        return [key for key in list(self._keys) if not key.startswith(OWN_KEYS) and self.get(key) is not None]

    @property
    def run_id(self) -> bytes:
        """Of the process that it is now."""
        name = f"{self.address} {len(self._past)}".encode()
        return sha1(name, usedforsecurity=False).hexdigest().encode()

    def restart(self, *, forget: bool = True) -> None:
        """Be another process: all connections are lost, and the memory too unless it was on disk."""
        nodes = list(self._nodes)
        for node in nodes:
            node.disconnect()
        self._past.append(self.run_id)
        if forget:
            self._keys.clear()
            self.counters.clear()
            self.queues.clear()
        for node in nodes:
            node.connect()

    def forget_trackers(self) -> None:
        """Lose track of who wants to be told: the next changes are told to nobody."""
        self._trackers.clear()

    def flush(self) -> None:
        """Forget everything, as FLUSHALL does."""
        self._keys.clear()
        self.counters.clear()
        self.queues.clear()
        self._trackers.clear()
        for node in list(self._nodes):
            node.told(None)

    def pttl(self, key: bytes) -> int:
        """Milliseconds that a key has left; -2 without one, -1 where it does not expire."""
        if self.get(key) is None:
            return -2
        if self._keys[key][1] == math.inf:
            return -1
        return max(0, round((self._keys[key][1] - self._clock()) * 1000))

    def execute(self, command: Command, by: Connection) -> Raw | Refusal:
        """What the script of the same name does."""
        if self.refuses is not None:
            return Refusal(self.refuses)
        self._tracks = command.tracked
        reply: Raw | Refusal = getattr(self, f"_{command.script.name}")(command, by)
        return reply

    def attach(self, node: Connection) -> None:
        """A connection was made."""
        self._nodes[node] = None

    def subscribe(self, node: Connection, channel: bytes) -> None:
        """Deliver the messages of a channel to a connection until that is lost."""
        self._subscribers.setdefault(channel, {})[node] = None

    def publish(self, channel: bytes, message: bytes) -> int:
        """Deliver a message, as PUBLISH does, and return how many connections receive it.

        A connection whose own script publishes to it gets the message before the script's answer. Some servers send
        it right behind: see the contract tests.
        """
        subscribers = list(self._subscribers.get(channel, ()))
        for node in subscribers:
            node.notified(message)
        return len(subscribers)

    def detach(self, node: Connection) -> None:
        """A connection was lost; its tracking and its subscriptions with it."""
        self._nodes.pop(node, None)
        for trackers in self._trackers.values():
            trackers.pop(node, None)
        for channel, subscribers in list(self._subscribers.items()):
            subscribers.pop(node, None)
            if not subscribers:
                del self._subscribers[channel]

    def _tell(self, key: bytes, by: Connection | None) -> None:
        for node in self._trackers.pop(key, ()):
            if node is not by:
                node.told([key])

    def _acquire(self, command: Command, by: Connection) -> Raw | Refusal:
        token, ttl, *claim = map(_bytes, command.args)
        refusal = self._take(command.keys, claim[0] if claim else b"")
        if refusal is not None:
            return refusal
        self._hold(command.keys, token, ttl, claim[0] if claim else b"", by)
        return 1

    def _acquire_guarded(self, command: Command, by: Connection) -> Raw | Refusal:
        keys = command.keys[:-2]
        token, ttl, vouch, fence, claim, tell, *slots = map(_bytes, command.args)
        refusal = self._take(keys, claim)
        if refusal is not None:
            return refusal
        if vouch:
            reading = self._marker_as(self._own(vouch))
            if reading.trust in (Trust.NONE, Trust.FOREIGN, Trust.EXCESSIVE) or reading.guard_ms < int(
                vouch.partition(b":")[2]
            ):
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
        """The refusal, if there is one."""
        for place, key in enumerate(keys, 1):
            value = self.get(key)
            if value is not None and not admits(value, claim):
                return [0, self.pttl(key), place, max(self.queues.highest(key, self.get(key)) for key in keys)]
        return None

    def _hold(self, keys: Sequence[bytes], token: bytes, ttl: bytes, claim: bytes, by: Connection) -> None:
        for key in keys:
            self.set(key, token, int(ttl) / 1000, by)
        for key in keys:
            self.queues.served(_Writing(self, by), key, claim)

    def _stand(self, command: Command, by: Connection) -> Raw | Refusal:
        (claim, life, kept), keys, own = map(_bytes, command.args), command.keys, _Writing(self, by)
        member = claim.partition(b":")[2]
        values = [self.get(key) for key in keys]
        place = next((at for at, value in enumerate(values) if value is not None and not admits(value, claim)), len(keys) - 1)
        key, queues = keys[place], self.queues
        if command.tracked:
            self._track(key, by)
        queues.add(key, claim, int(life) / 1000)
        for before, value in zip(keys[:place], values, strict=False):
            is_kept = value == OFFER + claim and self.pttl(before) > grace_of(member)
            if not is_kept and int(kept) > 0:
                own.keep(before, OFFER + claim, int(kept) / 1000)
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
        if left < 0 or (rank > 1 and not value.startswith(OFFER)):
            return [-1, place + 1, rank]
        return [left + max(rank, 0) * grace_of(member), place + 1, rank]

    def _leave(self, command: Command, by: Connection) -> Raw | Refusal:
        for key in command.keys:
            self.queues.leave(_Writing(self, by), key, _bytes(command.args[0]))
        return 1

    def _confirm(self, command: Command, by: Connection) -> Raw | Refusal:
        token, fence, *slots = map(_bytes, command.args)
        if any(self.get(key) != token for key in command.keys[:-1]):
            return [0, 0]
        return self._store(int(fence), slots, granted=0)

    def _store(self, fence: int, slots: Sequence[bytes], granted: int) -> Raw | Refusal:
        """Acknowledge a fence above all counters, or tell the highest."""
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
        token, ttl, vouch, fence, *slots = map(_bytes, command.args)
        holders = [self.get(key) for key in keys]
        if any(holder not in (None, token) for holder in holders):
            return 0
        if None in holders:
            reading = self._marker_as(self._own(vouch))
            if reading.trust is not Trust.TRUSTED or reading.guard_ms < int(vouch.partition(b":")[2]):
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
        become, expected, read_ms, vouch, nonce = map(_bytes, command.args)
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
        """What the connection sends: a placeholder is replaced by the run_id, a run_id that was read is left."""
        named, _, guard = vouch.partition(b":")
        return vouch if named in self._past else b"%b:%b" % (self.run_id, guard)

    def _marker_as(self, vouch: bytes) -> Reading:
        return read_marker(self.get(MARKER_KEY) or b"", self._now_ms(), vouch, 0.0, 0.0)

    def _now_ms(self) -> int:
        return int((self._clock() + self.skew) * 1000)

    def _track(self, key: bytes, by: Connection) -> None:
        if self._tracks:
            self._trackers.setdefault(key, {})[by] = None

    def _extend(self, command: Command, by: Connection) -> Raw | Refusal:
        ttl, *tokens = command.args
        for key, token in zip(command.keys, tokens, strict=True):
            if self.get(key) == token:
                self.set(key, _bytes(token), int(ttl) / 1000, by)
        return self._whose(command.keys, tokens, by)

    def _watch(self, command: Command, by: Connection) -> Raw | Refusal:
        n = len(command.keys) if len(command.args) <= len(command.keys) else len(command.keys) // 2
        tokens, labels = command.args[:n], command.args[n:]
        for at, key in enumerate(command.keys[n:]):
            if self.get(command.keys[at]) == tokens[at]:
                self.set(key, _bytes(labels[2 * at + 1]), int(labels[2 * at]) / 1000, by)
        return self._whose(command.keys[:n], tokens, by)

    def _whose(self, keys: Sequence[bytes], tokens: Sequence[bytes | int], by: Connection) -> Raw | Refusal:
        """Read the keys, and track them: their number when all hold their tokens, else an answer for each."""
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
            if key in ours or (self.get(label_key) or b"").startswith(_bytes(token)[:16] + b" "):
                self.delete(label_key, by)
        for key in ours:
            if not self.queues.offer(_Writing(self, by), key):
                self.delete(key, by)
        return len(ours)

    def _inspect(self, command: Command, by: Connection) -> Raw | Refusal:
        n = int(command.args[0]) if command.args else len(command.keys)
        answers: list[list[Any]] = [[self.pttl(key), self.get(key) or b""] for key in command.keys[:n]]
        for answer, label_key in zip(answers, command.keys[n:], strict=False):
            answer.append(self.get(label_key) or b"")
        if len(command.args) > 1:
            for answer, key in zip(answers, command.keys, strict=False):
                answer[2:] = [*(answer[2:] or [b""]), self.queues.waiting(key, answer[1])]
        return answers

    def _force_release(self, command: Command, by: Connection) -> Raw | Refusal:
        keys, last = command.keys, int(command.args[0]) + 2
        any_key, tokens = command.args[1], set(map(_bytes, command.args[2:last]))
        fenced = len(command.args) > last
        if fenced:
            keys = keys[:-1]
        doomed = [key for key in keys if self.get(key) in tokens]
        if not int(any_key) and any(self.pttl(key) == -1 for key in doomed):
            return Refusal("NOTALOCK string -1")
        if fenced:
            fence, *slots = map(_bytes, command.args[last:])
            counters = {slot: self.counters.get(slot, 0) for slot in slots}
            highest = max([int(fence), *(counter + 1 for counter in counters.values() if counter <= LATEST_US)])
            self.counters.update({slot: max(counter, highest) for slot, counter in counters.items()})
        for key in doomed:
            if not self.queues.offer(_Writing(self, by), key):
                self.delete(key, by)
        return len(doomed)


class _Writing:
    """The keys of a server as one connection changes them; see `memory_queue.Keys`."""

    def __init__(self, server: MemoryServer, by: Connection) -> None:
        self._server = server
        self._by = by
        self.get = server.get
        self.publish = server.publish

    def keep(self, key: bytes, value: bytes, ttl: float) -> None:
        """See `Keys.keep`."""
        self._server.set(key, value, ttl, self._by)

    def remove(self, key: bytes) -> None:
        """See `Keys.remove`."""
        self._server.delete(key, self._by)


def _bytes(value: bytes | int) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
