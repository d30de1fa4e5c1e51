"""The nodes of an `Aioredlock`: a `Redlock` that opens at its first use and closes once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aioredlock_ng import LockLost, Outcome, QuorumUnreachable, Vote
from aioredlock_ng._core.keys import KeyFormat, as_text
from aioredlock_ng._core.replies import KeyState
from aioredlock_ng._core.validity import deadline_of, ttl_ms
from aioredlock_ng._core.votes import no_vote
from aioredlock_ng._scripts import Command, Script
from aioredlock_ng.compat.aioredlock._words import in_words_of_aioredlock
from aioredlock_ng.compat.aioredlock.errors import LockRuntimeError

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from aioredlock_ng import LockInfo, Redlock
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._scripts.replies import Call

__all__ = ["Access", "name_of"]


def name_of(resource: str | bytes | float) -> str | bytes:
    """Return the name of a resource. aioredis writes numbers as keys, too."""
    return str(resource) if type(resource) in (int, float) else resource  # type: ignore[return-value]


class Access:
    """The way of an `Aioredlock` to its nodes.

    Args:
        redlock: The manager of these nodes.
        sentinels: Clients that look the nodes up; closed with it.

    Attributes:
        destroyed: True once it is closed for good.
    """

    def __init__(self, redlock: Redlock, sentinels: list[Redis]) -> None:
        self._redlock = redlock
        self._sentinels = sentinels
        self._opening = asyncio.Lock()
        self._open = False
        self.destroyed = False

    async def redlock(self) -> Redlock:
        """Open the manager at the first call, and return it.

        Raises:
            LockRuntimeError: It is destroyed.
            ConfigurationError: Two of the nodes are the same server.

        Safety: cancelled, the next caller opens it.
        """
        async with self._opening:
            if self.destroyed:
                raise LockRuntimeError("this Aioredlock is destroyed; make a new one")
            if not self._open:
                await self._redlock.open()
                # Two locks that shared a grant would have the same identifier.
                self._redlock.engine().lines.passing = False
                self._open = True
        return self._redlock

    async def inspect(self, resource: str | bytes | float) -> LockInfo:
        """Ask the nodes for the holder of a lock.

        Raises:
            LockRuntimeError: No majority of the nodes answered.

        Safety: cancelled, nothing has changed.
        """
        redlock = await self.redlock()
        with in_words_of_aioredlock():
            return await redlock.inspect(name_of(resource))

    async def release(self, resource: str | bytes | float, identifier: object) -> bool:
        """Delete the keys that hold this identifier, whichever process acquired the lock.

        Returns:
            False if no node had such a key.

        Raises:
            LockRuntimeError: No majority of the nodes answered.

        Safety: as `aioredlock_ng.Redlock.force_release`.
        """
        redlock = await self.redlock()
        with in_words_of_aioredlock():
            return (
                await redlock.force_release(name_of(resource), token=as_text(_token(identifier)))
                > 0
            )

    async def prolong(self, resource: str | bytes | float, identifier: object, ttl: float) -> float:
        """Give the keys that hold this identifier at least `ttl` seconds, whichever process acquired the lock.

        Returns:
            Seconds for which the lock is certainly held.

        Raises:
            LockLost: So many nodes hold no such key that no majority is left.
            QuorumUnreachable: No majority confirmed it.
            ConfigurationError: The ttl is unusable.
            LockRuntimeError: The manager is destroyed.

        Safety: cancelled, the keys may live longer or not.
        """
        engine = (await self.redlock()).engine()
        context, name = engine.context, name_of(resource)
        options, started = context.options, context.clock()
        ttl = options.check_ttl(ttl)
        key = KeyFormat(options.key_format).key(name)
        replies = await engine.poll(Command(_PROLONG, (key,), (_token(identifier), ttl_ms(ttl))))
        votes = tuple(
            _vote(node.address, reply)
            for node, reply in zip(context.fleet.nodes, replies, strict=True)
        )
        elapsed = context.clock() - started
        if sum(vote.outcome is Outcome.GRANTED for vote in votes) >= context.quorum:
            return deadline_of(started, ttl, options.drift(ttl)) - context.clock()
        if sum(vote.outcome is Outcome.HELD for vote in votes) > len(votes) - context.quorum:
            told = f"the lock {resource!r} is not held by this identifier: it was released, it expired, or another has it"
            raise LockLost(told, resource=str(name), votes=votes, elapsed=elapsed)
        told = f"the lock {resource!r} could not be extended, no quorum confirmed it: {'; '.join(map(str, votes))}"
        raise QuorumUnreachable(told, resource=str(name), votes=votes, elapsed=elapsed)

    async def destroy(self) -> None:
        """Close it for good.

        Raises:
            LockRuntimeError: Called from another event loop or a forked process; nothing was closed.

        Safety: as `aioredlock_ng.Redlock.aclose`; cancelled, it can be called again.
        """
        async with self._opening:
            with in_words_of_aioredlock():
                await self._redlock.aclose()
            for client in self._sentinels:
                await client.aclose()
            self.destroyed = True


def _token(identifier: object) -> bytes:
    """Return what aioredis writes for an identifier."""
    return identifier if isinstance(identifier, bytes) else str(identifier).encode()


def _prolonged(reply: object, _call: Call) -> KeyState | None:
    """Decode the reply of prolong.lua; None where it does not fit."""
    return _STATES.get(reply) if type(reply) is int else None


_STATES: Final = {1: KeyState.OURS, 0: KeyState.MISSING, 2: KeyState.FOREIGN}

_PROLONG: Final = Script("prolong", _prolonged, __package__)


def _vote(address: str, reply: Reply) -> Vote:
    match reply:
        case KeyState.OURS:
            return Vote(address, Outcome.GRANTED)
        case KeyState.MISSING:
            return Vote(address, Outcome.HELD, detail="no such key")
        case KeyState.FOREIGN:
            return Vote(address, Outcome.HELD, detail="another's key")
    return no_vote(address, reply)
