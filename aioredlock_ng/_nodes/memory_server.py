"""The memory of a lock server without a server: the scripts' meaning in Python; several connections may share it."""

from __future__ import annotations

import asyncio
import math
import re
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Protocol

from aioredlock_ng._core.fencing import LATEST_US
from aioredlock_ng._core.guard import Trust, read_marker
from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._scripts.kinds import MARKER_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.guard import Reading
    from aioredlock_ng._core.votes import Reply
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
        self._nodes: dict[Connection, None] = {}
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
        for node in nodes:
            node.connect()

    def forget_trackers(self) -> None:
        """Lose track of who wants to be told: the next changes are told to nobody."""
        self._trackers.clear()

    def flush(self) -> None:
        """Forget everything, as FLUSHALL does."""
        self._keys.clear()
        self.counters.clear()
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

    def execute(self, command: Command, by: Connection) -> Reply:
        """What the script of the same name does."""
        if self.refuses is not None:
            return Refusal(self.refuses)
        return getattr(self, f"_{command.script.name}")(command, by)

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

    def _acquire(self, command: Command, by: Connection) -> Reply:
        token, ttl = command.args
        if (refusal := self._held(command.keys, by)) is not None:
            return refusal
        for key in command.keys:
            self.set(key, _bytes(token), int(ttl) / 1000, by)
        return 1

    def _acquire_guarded(self, command: Command, by: Connection) -> Reply:
        keys = command.keys[:-2]
        token, ttl, vouch, fence, *slots = map(_bytes, command.args)
        precedence = slots[1:] if len(keys) == 1 else []
        slots = slots[: len(slots) - len(precedence)]
        if (refusal := self._held(keys, by, precedence)) is not None:
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
        for key in keys:
            self.set(key, token, int(ttl) / 1000, by)
        return self._store(int(fence), slots, granted=1) if fence else 1

    def _held(self, keys: Sequence[bytes], by: Connection, precedence: Sequence[bytes] = ()) -> Reply:
        """The refusal where another holds some of these, which leaves them tracked, or goes before others; else None."""
        held = {place: key for place, key in enumerate(keys, 1) if self.get(key) is not None}
        for key in held.values():
            self._track(key, by)
        if not held:
            return self._sent_away(*precedence) if precedence else None
        left = max(map(self.pttl, held.values()))
        if precedence:
            self._precede(left, *precedence)
        return [0, left, *(held if len(keys) > 1 else ())]

    def _precede(self, left: int, key: bytes, own: bytes, wants: bytes, times: bytes) -> None:
        """From the next release on this one goes first, if it wants to and was outrun more often than who wanted before."""
        who, _, most, _ = self._precedence(key)
        if wants != b"0" and (who in (b"", own) or int(most) < int(times)):
            self.set(key, b":".join((own, wants, times)), (left + int(wants)) / 1000)

    def _sent_away(self, key: bytes, own: bytes, *_: bytes) -> Reply:
        """The refusal where another goes first, from now on for as long as it wanted; else None."""
        who, wants, times, found = self._precedence(key)
        if who == own:
            self.delete(key)
        elif who:
            if not found:
                self.set(key, b":".join((who, wants, times, b"")), int(wants) / 1000)
            return [0, int(wants)]
        return None

    def _precedence(self, key: bytes) -> tuple[bytes, ...]:
        found = re.fullmatch(rb"([0-9A-Za-z]+):([0-9]+):([0-9]+)(:?)", self.get(key) or b"")
        return found.groups() if found else (b"", b"", b"", b"")

    def _confirm(self, command: Command, by: Connection) -> Reply:
        token, fence, *slots = map(_bytes, command.args)
        for key in command.keys[:-1]:
            self._track(key, by)
        if any(self.get(key) != token for key in command.keys[:-1]):
            return [0, 0]
        return self._store(int(fence), slots, granted=0)

    def _store(self, fence: int, slots: Sequence[bytes], granted: int) -> Reply:
        """Acknowledge a fence above all counters, or tell the highest."""
        highest = 0
        for slot in slots:
            counter = self.counters.get(slot, 0)
            if fence > counter:
                self.counters[slot] = fence
            else:
                highest = max(highest, counter)
        return [granted, highest] if highest else 1

    def _repair(self, command: Command, by: Connection) -> Reply:
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

    def _marker(self, command: Command, by: Connection) -> Reply:
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
        self._trackers.setdefault(key, {})[by] = None

    def _extend(self, command: Command, by: Connection) -> Reply:
        ttl, *tokens = command.args
        for key, token in zip(command.keys, tokens, strict=True):
            if self.get(key) == token:
                self.set(key, _bytes(token), int(ttl) / 1000, by)
        return self._whose(command.keys, tokens, by)

    def _watch(self, command: Command, by: Connection) -> Reply:
        n = len(command.keys) if len(command.args) <= len(command.keys) else len(command.keys) // 2
        tokens, labels = command.args[:n], command.args[n:]
        for at, key in enumerate(command.keys[n:]):
            if self.get(command.keys[at]) == tokens[at]:
                self.set(key, _bytes(labels[2 * at + 1]), int(labels[2 * at]) / 1000, by)
        return self._whose(command.keys[:n], tokens, by)

    def _whose(self, keys: Sequence[bytes], tokens: Sequence[bytes | int], by: Connection) -> Reply:
        """Read the keys, which leaves them tracked: their number when all hold their tokens, else an answer for each."""
        answers = []
        for key, token in zip(keys, tokens, strict=True):
            holder = self.get(key)
            self._track(key, by)
            answers.append(1 if holder == token else 0 if holder is None else -1)
        return len(answers) if set(answers) == {1} else answers

    def _release(self, command: Command, by: Connection) -> Reply:
        token = command.args[0]
        n = int(command.args[1]) if len(command.args) > 1 else len(command.keys)
        ours = [key for key in command.keys[:n] if self.get(key) == token]
        for key, label_key in zip(command.keys[:n], command.keys[n:], strict=False):
            if key in ours or (self.get(label_key) or b"").startswith(_bytes(token)[:16] + b" "):
                self.delete(label_key, by)
        for key in ours:
            self.delete(key, by)
        return len(ours)

    def _inspect(self, command: Command, by: Connection) -> Reply:
        n = int(command.args[0]) if command.args else len(command.keys)
        answers: list[list[Any]] = [[self.pttl(key), self.get(key) or b""] for key in command.keys[:n]]
        for answer, label_key in zip(answers, command.keys[n:], strict=False):
            answer.append(self.get(label_key) or b"")
        return answers

    def _note(self, command: Command, by: Connection) -> Reply:
        count, life = command.args
        for key in command.keys:
            self.set(key, _bytes(count), int(life) / 1000, by)
        return 1

    def _await_turn(self, command: Command, by: Connection) -> Reply:
        key, passed_key, passed, life = command.args
        self._track(command.keys[0], by)
        if self.get(_bytes(key)) is None:
            return 0
        said = self.get(_bytes(passed_key)) or b""
        most = int(said) if said.isdigit() else 0
        if most <= int(passed):
            self.set(_bytes(passed_key), _bytes(passed), int(life) / 1000, by)
        return max(most, int(passed))

    def _turn_over(self, command: Command, by: Connection) -> Reply:
        (key,) = command.keys
        self.set(key, b"", 0.001, by)
        self.delete(key, by)
        return 1

    def _force_release(self, command: Command, by: Connection) -> Reply:
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
        return sum(self.delete(key, by) for key in doomed)


def _bytes(value: bytes | int) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
