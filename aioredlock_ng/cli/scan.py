"""Finds the locks that the nodes have: SCAN on each, then one look at all nodes for each name; it writes nothing."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, cast

from hiredis import pack_command

from aioredlock_ng import QuorumUnreachable
from aioredlock_ng._core.inspection import lock_info, look_of
from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.quorum import quorum_of
from aioredlock_ng._core.replies import Free, Held
from aioredlock_ng._core.votes import Refusal, no_vote
from aioredlock_ng._nodes.question import Question
from aioredlock_ng._scripts import Request
from aioredlock_ng._scripts.kinds import MUTEX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng import LockInfo, Redlock
    from aioredlock_ng._core.inspection import Look
    from aioredlock_ng._core.keys import KeyFormat
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.port import Node

__all__ = ["Scan", "ask", "words"]

_STEP = 1000
"""Keys that one SCAN looks at: some hundred microseconds in which the server does nothing else."""

_BATCH = 100
"""Keys in one look at all nodes."""

_PATIENCE = 5.0
"""Seconds that one SCAN may take on a busy server before the node is left out."""


class Scan:
    """One listing of the locks of a set of nodes.

    Args:
        redlock: Open.
        key_format: As the manager has it.
        pattern: Of names, as KEYS and SCAN have it.
        every: Also keys that are no locks of this library: of other types, or without expiry.

    Attributes:
        silent: After `keys`: why nodes have no part in the listing, by their addresses.
    """

    def __init__(
        self, redlock: Redlock, key_format: KeyFormat, pattern: str | bytes, *, every: bool = False
    ) -> None:
        self._redlock = redlock
        self._format = key_format
        self._match = key_format.matching(pattern)
        self._every = every
        self.silent: dict[str, str] = {}

    def name(self, key: bytes) -> str:
        """A key's name, for people."""
        return self._format.name(key)

    async def sizes(self) -> int:
        """How many keys there are to look at on all nodes together, as far as they tell."""
        nodes = self._redlock.engine().context.fleet.nodes
        replies = await asyncio.gather(
            *(ask(node, index, words("DBSIZE")) for index, node in enumerate(nodes))
        )
        return sum(reply for reply in replies if type(reply) is int)

    async def keys(self, advance: Callable[[int], object] = lambda _: None) -> list[bytes]:
        """What may be locks, by SCAN on every node.

        Args:
            advance: Called with a number of keys that have been looked at.

        Raises:
            QuorumUnreachable: Too few nodes could be scanned.
        """
        nodes = self._redlock.engine().context.fleet.nodes
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
        return sorted(set().union(*scanned))

    async def look(self, keys: Sequence[bytes]) -> list[LockInfo]:
        """The locks among these keys, by one look at all nodes."""
        return [
            lock
            for start in range(0, len(keys), _BATCH)
            for lock in await self._look(keys[start : start + _BATCH])
        ]

    async def _keys_of(
        self, node: Node, index: int, advance: Callable[[int], object]
    ) -> set[bytes] | str:
        """The keys of one node that may be locks, or why it does not tell."""
        keys = await self._found(
            node, index, self._match, advance, kind=None if self._every else "string"
        )
        return (
            keys if isinstance(keys, str) else {key for key in keys if not key.startswith(OWN_KEYS)}
        )

    async def _found(
        self,
        node: Node,
        index: int,
        pattern: bytes,
        advance: Callable[[int], object] = lambda _: None,
        *,
        kind: str | None = "string",
    ) -> set[bytes] | str:
        """The keys of one node that match, of one type (None: of any); or why it does not tell."""
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
        nodes = self._redlock.engine().context.fleet.nodes
        labels = tuple(map(owner_key, keys)) if labelled else ()
        replies = await self._redlock.engine().poll(
            MUTEX.inspecting(tuple(keys), labels, queues=True)
        )
        if any(isinstance(reply, Refusal) for reply in replies):
            # A key that this user may not read spoils the answer for all: one by one.
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


def _may_be_a_lock(look: Look) -> bool:
    """True if the key expires and is a string; it may be kept for a waiter, and held by nobody."""
    return (isinstance(look, Held) and look.remaining < math.inf) or (
        isinstance(look, Free) and look.offered is not None
    )


def words(*words: Any) -> Request:
    """A command by its words."""
    return Request(pack_command(words))


async def ask(node: Node, index: int, request: Request, within: float = _PATIENCE) -> Reply:
    """Ask one node.

    Returns:
        The answer; None when there is none within so many seconds.
    """
    question = Question(request, asyncio.get_running_loop().time())
    node.ask(question, index)
    try:
        async with asyncio.timeout(within):
            return await question.reply
    except TimeoutError:
        return None
