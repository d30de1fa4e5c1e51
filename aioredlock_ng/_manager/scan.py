"""Find the locks on the nodes by SCAN, and ask all nodes about each lock."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, cast

from aioredlock_ng._core.inspection import lock_info, look_of
from aioredlock_ng._core.keys import OWN_KEYS, slot_in
from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._core.replies import Free, Held, ReadLocked
from aioredlock_ng._core.votes import Refusal, Reply, no_vote
from aioredlock_ng._scripts import Request
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng.errors import ConfigurationError, QuorumUnreachable
from aioredlock_ng.redlock import Redlock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.inspection import Look
    from aioredlock_ng._nodes.port import Node
    from aioredlock_ng.records import LockInfo

__all__ = ["Scan", "checked_manager"]

_STEP = 1000
"""Keys per SCAN request. One request keeps a server busy for some hundred microseconds."""

_BATCH = 100
"""Number of keys about which one request asks all nodes."""

_PATIENCE = 5.0
"""Longest wait in seconds for the answer to one request. A node that takes longer is left out."""


def checked_manager(call: str, redlock: object, remedy: str = "") -> Redlock:
    """Return `redlock`, if it is a manager for asyncio.

    Args:
        call: The name of the public function or class.
        redlock: The argument of a user.
        remedy: The end of the message.

    Raises:
        ConfigurationError: `redlock` is no manager for asyncio. The message names only the type of
            `redlock`, because a URL given by mistake may contain a password.
    """
    if not isinstance(redlock, Redlock):
        raise ConfigurationError(
            f"{call}() takes an aioredlock_ng.Redlock, not"
            f" {type(redlock).__module__}.{type(redlock).__name__}{remedy}"
        )
    return redlock


class Scan:
    """A listing of the locks on all nodes. Nothing is written.

    First `keys` finds the keys that may be locks. Then `inspect` returns the state of each lock.

    Args:
        redlock: The manager. It must be open when a method is called, but not before.
        pattern: A pattern for names, in the syntax of the server command SCAN.
        every: True: also list keys that cannot be locks, such as lists and strings without expiry.

    Attributes:
        silent: The nodes that the last call of `keys` could not scan, with the reasons.

    Raises:
        ConfigurationError: `redlock` is not an `aioredlock_ng.Redlock`. Or the pattern is empty,
            too long, neither str nor bytes, or incomplete, such as `a[b`.
    """

    def __init__(
        self, redlock: Redlock, pattern: str | bytes = "*", *, every: bool = False
    ) -> None:
        self._redlock = checked_manager("Scan", redlock)
        self._format = redlock.key_format()
        self._match = self._format.matching(pattern)
        self._every = every
        # The key of a lock is a string, or a sorted set if readers hold the lock. A SCAN can filter
        # by one type only, so each type has a SCAN of its own.
        self._types = (None,) if every else ("string", "zset")
        self.silent: dict[str, str] = {}

    async def sizes(self) -> int:
        """Return how many keys a call of `keys` scans, for a progress bar.

        Each key of each node counts once per scanned type. Nodes without an answer do not count.

        Raises:
            RedlockClosed: The manager is not open, or belongs to another loop or process.

        Safety: a cancellation ends only the wait.
        """
        replies = await asyncio.gather(
            *(self._ask(index, "DBSIZE") for index in range(len(self._nodes)))
        )
        return sum(reply for reply in replies if type(reply) is int) * len(self._types)

    async def keys(self, advance: Callable[[int], object] = lambda _: None) -> list[bytes]:
        """Return the keys that may be locks, sorted by name, from a SCAN on every node.

        The slots of a semaphore are in the order of their numbers.

        Args:
            advance: Called after each request with the approximate number of keys that it scanned.

        Raises:
            QuorumUnreachable: Too few nodes could be scanned.
            RedlockClosed: The manager is not open, or belongs to another loop or process.

        Safety: a cancellation ends only the wait.
        """
        nodes = self._nodes
        found = await asyncio.gather(
            *(self._keys_of(index, advance) for index in range(len(nodes)))
        )
        scanned = [keys for keys in found if isinstance(keys, set)]
        self.silent = {
            node.address: str(said)
            for node, said in zip(nodes, found, strict=True)
            if isinstance(said, str)
        }
        if len(scanned) < quorum_of(len(nodes)):
            told = "; ".join(f"{address}: {said}" for address, said in self.silent.items())
            raise QuorumUnreachable(f"no majority of the nodes could be scanned: {told}")
        return sorted(set().union(*scanned), key=_rank)

    async def inspect(self, keys: Sequence[bytes]) -> list[LockInfo]:
        """Ask all nodes about keys that `keys` returned.

        Returns:
            The locks among these keys, or with `every` the state of each key. A node that does not
            answer within `node_timeout` is missing from the result.

        Raises:
            RedlockClosed: The manager is not open, or belongs to another loop or process.

        Safety: a cancellation ends only the wait.
        """
        return [
            lock
            for start in range(0, len(keys), _BATCH)
            for lock in await self._inspect(keys[start : start + _BATCH])
        ]

    @property
    def _nodes(self) -> Sequence[Node]:
        return self._redlock.engine().context.fleet.nodes

    async def _ask(self, index: int, *words: Any) -> Reply:
        """Send these words as one command to a node, and return the answer."""
        engine = self._redlock.engine()
        engine.usable()
        return await engine.ask_node(index, Request.of(*words), _PATIENCE)

    async def _keys_of(self, index: int, advance: Callable[[int], object]) -> set[bytes] | str:
        """Return a node's keys that may be locks, or the reason why the keys are not known."""
        keys: set[bytes] = set()
        for kind in self._types:
            found = await self._found(index, advance, kind)
            if isinstance(found, str):
                return found
            keys |= found
        has_name = self._format.has_name
        return {key for key in keys if has_name(key) and not key.startswith(OWN_KEYS)}

    async def _found(
        self, index: int, advance: Callable[[int], object], kind: str | None
    ) -> set[bytes] | str:
        """Return a node's matching keys of one type, or the reason why the keys are not known.

        If `kind` is None, return the keys of any type.
        """
        keys: set[bytes] = set()
        cursor: bytes = b"0"
        types = () if kind is None else ("TYPE", kind)
        while True:
            reply = await self._ask(
                index, "SCAN", cursor, "MATCH", self._match, "COUNT", _STEP, *types
            )
            match reply:
                case [bytes(cursor), list(page)] if all(type(key) is bytes for key in page):
                    keys.update(cast("list[bytes]", page))
                case _:
                    return no_vote(self._nodes[index].address, reply).detail
            advance(_STEP)
            if cursor == b"0":
                return keys

    async def _inspect(self, keys: Sequence[bytes], *, labelled: bool = True) -> list[LockInfo]:
        labels = tuple(map(owner_key, keys)) if labelled else ()
        command = MUTEX.inspecting(tuple(keys), labels, queues=True)
        replies = await self._redlock.engine().poll(command)
        if any(isinstance(reply, Refusal) for reply in replies):
            # One key that the connection's user may not read makes the whole request fail. So each
            # key gets a request of its own. If the request for one key fails too, ask again without
            # the key's label.
            if len(keys) > 1:
                return [lock for key in keys for lock in await self._inspect([key])]
            if labelled:
                return await self._inspect(keys, labelled=False)
        addresses = [node.address for node in self._nodes]
        locks = []
        for place, key in enumerate(keys):
            looks = [look_of(reply, place) for reply in replies]
            info = lock_info(self._format.name(key), addresses, looks)
            if self._every or any(map(_may_be_a_lock, looks)):
                locks.append(info)
        return locks


def _rank(key: bytes) -> tuple[bytes, int]:
    return slot_in(key) or (key, 0)


def _may_be_a_lock(look: Look) -> bool:
    """Return True if the key has readers, is offered to a waiter, or is a string that expires."""
    return (
        (isinstance(look, Held) and look.remaining < math.inf)
        or (isinstance(look, Free) and look.offered is not None)
        or isinstance(look, ReadLocked)
    )
