"""The keys of an in-process server: expiry, tracking, messages and restarts."""

from __future__ import annotations

import asyncio
import math
from hashlib import sha1
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng._nodes.memory.queues import Queues

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Connection", "Keyspace", "Writing"]


class Connection(Protocol):
    """One manager's connection to a server."""

    def connect(self) -> None:
        """Connect again, because the server is back."""

    def disconnect(self) -> None:
        """Disconnect, because the server is gone."""

    def told(self, keys: list[bytes] | None) -> None:
        """Take a notice that tracked keys changed; None means any key."""

    def notified(self, message: bytes) -> None:
        """Take a message that was published on the channel of this connection."""


class Keyspace:
    """The keys of one server, which several connections share.

    Args:
        address: Its name in messages.
        clock: Returns the time in seconds that decides when keys expire. None: the running loop's
            clock.

    Attributes:
        counters: Its fence counters.
        up: False while it accepts no connections.
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
        # Dictionaries keep the order of arrival. The order of a set of objects differs between
        # processes, so a seed would not repeat a run.
        self._trackers: dict[bytes, dict[Connection, None]] = {}
        self._nodes: dict[Connection, None] = {}
        self.queues = Queues(self._clock)
        self._subscribers: dict[bytes, dict[Connection, None]] = {}

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if there is none or it has expired."""
        held = self._keys.get(key)
        if held is None:
            return None
        if held[1] <= self._clock():
            self.delete(key)
            return None
        return held[0]

    def set(self, key: bytes, value: bytes, ttl: float, by: Connection | None = None) -> None:
        """Set a key for `ttl` seconds. Trackers other than `by` are notified."""
        self._keys[key] = (value, self._clock() + ttl)
        if ttl < math.inf:
            asyncio.get_running_loop().call_later(ttl, self.get, key)
        self._tell(key, by)

    def delete(self, key: bytes, by: Connection | None = None) -> bool:
        """Delete a key. Trackers other than `by` are notified. Return True if it existed."""
        if self._keys.pop(key, None) is None:
            return False
        self._tell(key, by)
        return True

    def keys(self) -> list[bytes]:
        """Return the keys of locks that have not expired."""
        return [
            key
            for key in list(self._keys)
            if not key.startswith(OWN_KEYS) and self.get(key) is not None
        ]

    @property
    def run_id(self) -> bytes:
        """The run id of the present server process."""
        name = f"{self.address} {len(self._past)}".encode()
        return sha1(name, usedforsecurity=False).hexdigest().encode()

    def restart(self, *, forget: bool = True) -> None:
        """Become another process. All connections are lost, and with `forget` all data."""
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
        """Forget all trackers, so that no connection is notified of the next changes."""
        self._trackers.clear()

    def flush(self) -> None:
        """Delete everything, as FLUSHALL does."""
        self._keys.clear()
        self.counters.clear()
        self.queues.clear()
        self._trackers.clear()
        for node in list(self._nodes):
            node.told(None)

    def pttl(self, key: bytes) -> int:
        """Return the milliseconds that a key has left; -2 without a key, -1 without an expiry."""
        if self.get(key) is None:
            return -2
        if self._keys[key][1] == math.inf:
            return -1
        return max(0, round((self._keys[key][1] - self._clock()) * 1000))

    def attach(self, node: Connection) -> None:
        """Add a connection."""
        self._nodes[node] = None

    def subscribe(self, node: Connection, channel: bytes) -> None:
        """Deliver the messages of a channel to a connection until it is lost."""
        self._subscribers.setdefault(channel, {})[node] = None

    def publish(self, channel: bytes, message: bytes) -> int:
        """Deliver a message, as PUBLISH does, and return how many connections receive it.

        If a connection's own script publishes to it, the message comes before the script's reply.
        Some servers send it right behind the reply; see the contract tests.
        """
        subscribers = list(self._subscribers.get(channel, ()))
        for node in subscribers:
            node.notified(message)
        return len(subscribers)

    def detach(self, node: Connection) -> None:
        """Remove a connection, with its tracking and its subscriptions."""
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


class Writing:
    """The keys of a server, changed by one connection; the `Keys` of `memory_queue`."""

    def __init__(self, server: Keyspace, by: Connection) -> None:
        self._server = server
        self._by = by
        self.get = server.get
        self.publish = server.publish
        self.pttl = server.pttl

    def keep(self, key: bytes, value: bytes, ttl: float) -> None:
        """Set a key for `ttl` seconds."""
        self._server.set(key, value, ttl, self._by)

    def remove(self, key: bytes) -> None:
        """Delete a key."""
        self._server.delete(key, self._by)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
