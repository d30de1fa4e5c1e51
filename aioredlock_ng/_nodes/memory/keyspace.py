"""The keys of an in-process server: expiry, tracking, messages and restarts."""

from __future__ import annotations

import asyncio
import math
from hashlib import sha1
from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng._core.readers import READERS
from aioredlock_ng._nodes.memory.queues import Queues

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Connection", "Keyspace", "Writing"]


class Connection(Protocol):
    """One manager's connection to a server."""

    def connect(self) -> None:
        """Connect to the server after it has restarted or has become reachable again."""

    def disconnect(self) -> None:
        """Drop the connection, because the server restarts or is unreachable."""

    def invalidated(self, keys: list[bytes] | None) -> None:
        """Process a notice of changed keys. If `keys` is None, any tracked key may have changed."""

    def notified(self, message: bytes) -> None:
        """Process a message that was published on the channel of this connection."""


class Keyspace:
    """The keys of one server, which several connections share.

    Args:
        address: The server's name in messages.
        clock: Returns the current time of the server in seconds. By default, the clock of the
            running event loop.

    Attributes:
        counters: The fence counters.
        up: False while the server accepts no connections.
        skew: Seconds by which the server's wall clock is ahead of `clock`.
    """

    def __init__(self, address: str = "memory", clock: Callable[[], float] | None = None) -> None:
        self.address = address
        self._clock = clock or _loop_time
        self.up = True
        self.skew = 0.0
        self._past: list[bytes] = []
        self.counters: dict[bytes, int] = {}
        self._keys: dict[bytes, tuple[bytes, float]] = {}
        # The entries of keys held by readers, each with the instant at which it expires.
        self._entries: dict[bytes, dict[bytes, float]] = {}
        # Dictionaries keep the order of arrival. The order of a set differs between processes, so a
        # simulation with sets could not be repeated from its seed.
        self._trackers: dict[bytes, dict[Connection, None]] = {}
        self._nodes: dict[Connection, None] = {}
        self.queues = Queues(self._clock)
        self._subscribers: dict[bytes, dict[Connection, None]] = {}

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if the key is missing or has expired.

        The value is `READERS` if readers hold the key.
        """
        held = self._keys.get(key)
        if held is None:
            return None
        if held[1] <= self._clock():
            self.delete(key)
            return None
        return held[0]

    def set(self, key: bytes, value: bytes, ttl: float, by: Connection | None = None) -> None:
        """Set a key for `ttl` seconds, and notify the connections that track it, except `by`."""
        if value != READERS:
            self._entries.pop(key, None)
        self._keys[key] = (value, self._clock() + ttl)
        if ttl < math.inf:
            asyncio.get_running_loop().call_later(ttl, self.get, key)
        self._invalidate(key, by)

    def delete(self, key: bytes, by: Connection | None = None) -> bool:
        """Delete a key, and notify the connections that track it, except `by`.

        Return True if the key existed.
        """
        self._entries.pop(key, None)
        if self._keys.pop(key, None) is None:
            return False
        self._invalidate(key, by)
        return True

    def entries(self, key: bytes) -> dict[bytes, float]:
        """Return the entries of a key's readers, each with its remaining seconds.

        The result is {} if no reader holds the key.
        """
        if self.get(key) != READERS:
            return {}
        now = self._clock()
        return {
            entry: until - now for entry, until in self._entries[key].items() if until - now >= 0
        }

    def keep_entry(self, key: bytes, entry: bytes, ttl: float, by: Connection | None) -> None:
        """Keep an entry of a reader for at least `ttl` seconds.

        If the key has the token of a writer, the entry replaces the token.
        """
        entries = self.entries(key)
        entries[entry] = max(ttl, entries.get(entry, 0.0))
        self._renew_entries(key, entries, by)

    def remove_entry(self, key: bytes, entry: bytes, by: Connection | None) -> bool:
        """Delete an entry of a reader. Return True if it existed."""
        entries = self.entries(key)
        if entries.pop(entry, None) is None:
            return False
        self._renew_entries(key, entries, by)
        return True

    def _renew_entries(
        self, key: bytes, entries: dict[bytes, float], by: Connection | None
    ) -> None:
        if not entries:
            self.delete(key, by)
            return
        now = self._clock()
        self._entries[key] = {entry: now + left for entry, left in entries.items()}
        self.set(key, READERS, max(entries.values()), by)

    def keys(self) -> list[bytes]:
        """Return the keys of locks that have not expired."""
        return [
            key
            for key in list(self._keys)
            if not key.startswith(OWN_KEYS) and self.get(key) is not None
        ]

    @property
    def run_id(self) -> bytes:
        name = f"{self.address} {len(self._past)}".encode()
        return sha1(name, usedforsecurity=False).hexdigest().encode()

    def restart(self, *, forget: bool = True) -> None:
        """Act as a new server process: cut all connections, and let them connect again.

        If `forget` is True, all data are lost, too.
        """
        nodes = list(self._nodes)
        for node in nodes:
            node.disconnect()
        self._past.append(self.run_id)
        if forget:
            self._keys.clear()
            self._entries.clear()
            self.counters.clear()
            self.queues.clear()
        for node in nodes:
            node.connect()

    def forget_trackers(self) -> None:
        """Forget which connections track which keys. The next changes of the keys notify nobody."""
        self._trackers.clear()

    def flush(self) -> None:
        """Delete everything, as FLUSHALL does."""
        self._keys.clear()
        self._entries.clear()
        self.counters.clear()
        self.queues.clear()
        self._trackers.clear()
        for node in list(self._nodes):
            node.invalidated(None)

    def pttl(self, key: bytes) -> int:
        """Return the remaining milliseconds of a key; -2 without a key, -1 without an expiry."""
        if self.get(key) is None:
            return -2
        if self._keys[key][1] == math.inf:
            return -1
        return max(0, round((self._keys[key][1] - self._clock()) * 1000))

    def attach(self, node: Connection) -> None:
        self._nodes[node] = None

    def subscribe(self, node: Connection, channel: bytes) -> None:
        """Deliver the messages of a channel to a connection until the connection is lost."""
        self._subscribers.setdefault(channel, {})[node] = None

    def publish(self, channel: bytes, message: bytes) -> int:
        """Deliver a message, as PUBLISH does, and return how many connections receive it.

        If a script publishes to the connection that runs it, the message comes before the script's
        reply. Some servers send the message right behind the reply; see the contract tests.
        """
        subscribers = list(self._subscribers.get(channel, ()))
        for node in subscribers:
            node.notified(message)
        return len(subscribers)

    def listeners(self, channel: bytes) -> int:
        """Return how many connections receive the messages of a channel."""
        return len(self._subscribers.get(channel, ()))

    def detach(self, node: Connection) -> None:
        """Remove a connection, with its tracking and its subscriptions."""
        self._nodes.pop(node, None)
        for key, trackers in list(self._trackers.items()):
            trackers.pop(node, None)
            if not trackers:
                del self._trackers[key]
        for channel, subscribers in list(self._subscribers.items()):
            subscribers.pop(node, None)
            if not subscribers:
                del self._subscribers[channel]

    def track(self, key: bytes, by: Connection) -> None:
        """Notify the connection `by` when the key changes next."""
        self._trackers.setdefault(key, {})[by] = None

    def _invalidate(self, key: bytes, by: Connection | None) -> None:
        for node in self._trackers.pop(key, ()):
            if node is not by:
                node.invalidated([key])


class Writing:
    """The keys of a server, with methods for changes by one connection.

    The class implements the protocol `queue_store.Keys`.
    """

    def __init__(self, server: Keyspace, by: Connection) -> None:
        self._server = server
        self._by = by
        self.get = server.get
        self.entries = server.entries
        self.publish = server.publish
        self.listeners = server.listeners
        self.pttl = server.pttl

    def keep(self, key: bytes, value: bytes, ttl: float) -> None:
        self._server.set(key, value, ttl, self._by)

    def remove(self, key: bytes) -> None:
        self._server.delete(key, self._by)

    def keep_entry(self, key: bytes, entry: bytes, ttl: float) -> None:
        self._server.keep_entry(key, entry, ttl, self._by)

    def remove_entry(self, key: bytes, entry: bytes) -> bool:
        return self._server.remove_entry(key, entry, self._by)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
