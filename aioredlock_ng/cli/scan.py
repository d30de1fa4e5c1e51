"""Find the locks on the nodes by SCAN, and ask all nodes about each lock. Nothing is written."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, cast

from hiredis import pack_command

from aioredlock_ng import QuorumUnreachable
from aioredlock_ng._core.inspection import lock_info, look_of
from aioredlock_ng._core.keys import OWN_KEYS, slot_in
from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._core.replies import Free, Held, ReadLocked
from aioredlock_ng._core.votes import Refusal, no_vote
from aioredlock_ng._nodes.question import Question
from aioredlock_ng._scripts import Request
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng.operations import Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng import LockInfo, Redlock
    from aioredlock_ng._core.inspection import Look
    from aioredlock_ng._core.keys import KeyFormat
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.port import Node

__all__ = ["Scan", "ask", "words"]

_STEP = 1000
"""Keys per SCAN request. One request keeps a server busy for some hundred microseconds."""

_BATCH = 100
"""Number of keys about which one request asks all nodes."""

_PATIENCE = 5.0
"""Longest wait in seconds for the answer to one request. A node that takes longer is left out."""


class Scan:
    """One listing of the locks of a set of nodes.

    Args:
        redlock: The manager, which must be open before the listing begins.
        key_format: The manager's key format.
        pattern: A pattern for names, in the syntax of SCAN.
        every: True: also list keys that cannot be locks, such as lists and strings without expiry.

    Attributes:
        silent: The nodes that the last call of `keys` could not scan, with the reasons.
    """

    def __init__(
        self, redlock: Redlock, key_format: KeyFormat, pattern: str | bytes, *, every: bool = False
    ) -> None:
        self._redlock = redlock
        self._format = key_format
        self._match = key_format.matching(pattern)
        self._every = every
        # The key of a lock is a string, or a sorted set if readers hold the lock. A SCAN can filter
        # by one type only, so each type has a SCAN of its own.
        self._types = (None,) if every else ("string", "zset")
        self.silent: dict[str, str] = {}

    async def sizes(self) -> int:
        """Return how many keys to scan: the keys of each node that answers, once per type."""
        nodes = Operator(self._redlock).nodes
        replies = await asyncio.gather(
            *(ask(node, index, words("DBSIZE")) for index, node in enumerate(nodes))
        )
        return sum(reply for reply in replies if type(reply) is int) * len(self._types)

    async def keys(self, advance: Callable[[int], object] = lambda _: None) -> list[bytes]:
        """Return the keys that may be locks, sorted by name, from a SCAN on every node.

        The slots of a semaphore are in the order of their numbers.

        Args:
            advance: Called after each request with the approximate number of keys that it scanned.

        Raises:
            QuorumUnreachable: Too few nodes could be scanned.
        """
        nodes = Operator(self._redlock).nodes
        found = await asyncio.gather(
            *(self._keys_of(node, index, advance) for index, node in enumerate(nodes))
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

    async def look(self, keys: Sequence[bytes]) -> list[LockInfo]:
        """Return the locks among these keys, or with `every` the state of each key."""
        return [
            lock
            for start in range(0, len(keys), _BATCH)
            for lock in await self._look(keys[start : start + _BATCH])
        ]

    async def _keys_of(
        self, node: Node, index: int, advance: Callable[[int], object]
    ) -> set[bytes] | str:
        """Return a node's keys that may be locks, or the reason why the keys are not known."""
        keys: set[bytes] = set()
        for kind in self._types:
            found = await self._found(node, index, self._match, advance, kind=kind)
            if isinstance(found, str):
                return found
            keys |= found
        return {key for key in keys if not key.startswith(OWN_KEYS)}

    async def _found(
        self,
        node: Node,
        index: int,
        pattern: bytes,
        advance: Callable[[int], object],
        *,
        kind: str | None,
    ) -> set[bytes] | str:
        """Return a node's matching keys of one type, or the reason why the keys are not known.

        If `kind` is None, return the keys of any type.
        """
        keys: set[bytes] = set()
        cursor: bytes = b"0"
        types = () if kind is None else ("TYPE", kind)
        while True:
            reply = await ask(
                node, index, words("SCAN", cursor, "MATCH", pattern, "COUNT", _STEP, *types)
            )
            match reply:
                case [bytes(cursor), list(page)] if all(type(key) is bytes for key in page):
                    keys.update(cast("list[bytes]", page))
                case _:
                    return no_vote(node.address, reply).detail
            advance(_STEP)
            if cursor == b"0":
                return keys

    async def _look(self, keys: Sequence[bytes], *, labelled: bool = True) -> list[LockInfo]:
        nodes = Operator(self._redlock).nodes
        labels = tuple(map(owner_key, keys)) if labelled else ()
        replies = await Operator(self._redlock).poll(
            MUTEX.inspecting(tuple(keys), labels, queues=True)
        )
        if any(isinstance(reply, Refusal) for reply in replies):
            # One key that the connection's user may not read makes the whole request fail. So each
            # key gets a request of its own. If the request for one key fails too, ask again without
            # the key's label.
            if len(keys) > 1:
                return [lock for key in keys for lock in await self._look([key])]
            if labelled:
                return await self._look(keys, labelled=False)
        addresses = [node.address for node in nodes]
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


def words(*words: Any) -> Request:
    """Return a request that sends these words as one command."""
    return Request(pack_command(words))


async def ask(node: Node, index: int, request: Request, within: float = _PATIENCE) -> Reply:
    """Return a node's answer to a request, or None if no answer came in `within` seconds."""
    question = Question(request, asyncio.get_running_loop().time())
    node.ask(question, index)
    try:
        async with asyncio.timeout(within):
            return await question.reply
    except TimeoutError:
        return None
