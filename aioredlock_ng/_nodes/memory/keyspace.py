"""The keys of a lock server without a server: expiry, tracking, messages and restarts. Several connections share them."""

from __future__ import annotations

import asyncio
import math
from hashlib import sha1
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng._nodes.memory_queue import Queues

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Connection", "Keyspace"]


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


class Keyspace:
    """The keys of one server that lives in this process.

    Args:
        address: Its name in messages.
        clock: Seconds in which its keys expire; None: the running loop's.

    Attributes:
        counters: Its fence counters.
        up: False while nobody can connect.
        skew: Seconds by which its wall clock differs from `clock`.
    """

    def __init__(self, address: str = "memory", clock: Callable[[], float] | None = None) -> None:
        self.address = address
        self._clock = clock or _loop_time
        self.up = True
        self.skew = 0.0
        self._past: list[bytes] = []
        self.counters: dict[bytes, int] = {}
        self._keys: dict[bytes, tuple[bytes, float]] = {}
        # In order of arrival: the order of a set of objects differs between processes, and a seed would repeat nothing.
        self._trackers: dict[bytes, dict[Connection, None]] = {}
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
        return [
            key
            for key in list(self._keys)
            if not key.startswith(OWN_KEYS) and self.get(key) is not None
        ]

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

    def track(self, key: bytes, by: Connection) -> None:
        """Notify a connection of the next change of a key."""
        self._trackers.setdefault(key, {})[by] = None

    def _tell(self, key: bytes, by: Connection | None) -> None:
        for node in self._trackers.pop(key, ()):
            if node is not by:
                node.told([key])


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
