"""Give an `Aioredlock` access to its nodes, through a `Redlock` that opens at its first use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aioredlock_ng import ConfigurationError, LockLost, Outcome, QuorumUnreachable, Vote
from aioredlock_ng._core.keys import KeyFormat, as_text
from aioredlock_ng._core.replies import KeyState
from aioredlock_ng._core.validity import deadline_of, ttl_ms
from aioredlock_ng._core.votes import no_vote
from aioredlock_ng._scripts import Command, Script
from aioredlock_ng.compat.aioredlock._words import in_words_of_aioredlock
from aioredlock_ng.compat.aioredlock.errors import LockRuntimeError
from aioredlock_ng.operations import Operator

if TYPE_CHECKING:
    from aioredlock_ng import LockInfo, Redlock
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._scripts.decoding import Call

__all__ = ["Access", "name_of", "token_of"]


def name_of(resource: str | bytes | float) -> str | bytes:
    """Return the name of a resource. A number is converted to text, as aioredis does in keys."""
    if type(resource) in (int, float):
        return str(resource)
    return resource  # type: ignore[return-value]


def token_of(identifier: object) -> str:
    """Return the token of an identifier, as `LockInfo` and `NodeAnswer` have it."""
    return as_text(_token(identifier))


class Access:
    """The access of an `Aioredlock` to its nodes.

    Args:
        redlock: The manager of the nodes.

    Attributes:
        destroyed: True after a call of `destroy` has closed the manager.
    """

    def __init__(self, redlock: Redlock) -> None:
        self._redlock = redlock
        self._opening = asyncio.Lock()
        self._open = False
        self.destroyed = False

    async def redlock(self) -> Redlock:
        """Open the manager at the first call, and return it.

        Raises:
            LockRuntimeError: The manager is destroyed.
            ConfigurationError: Two nodes are the same server.

        Safety: after a cancelled call, the next caller opens the manager.
        """
        async with self._opening:
            if self.destroyed:
                raise LockRuntimeError("this Aioredlock is destroyed; make a new one")
            if not self._open:
                await self._redlock.open()
                # If a grant were passed on, two locks would have the same identifier.
                Operator(self._redlock).give_each_lease_its_own_token()
                self._open = True
        return self._redlock

    async def inspect(self, resource: str | bytes | float) -> LockInfo:
        """Ask the nodes for the holder of a lock.

        Raises:
            LockRuntimeError: No majority of the nodes answered, or the manager is destroyed.

        Safety: a cancelled call changes nothing.
        """
        redlock = await self.redlock()
        with in_words_of_aioredlock():
            return await redlock.inspect(name_of(resource))

    async def release(self, resource: str | bytes | float, identifier: object) -> bool:
        """Delete the lock's keys with this identifier, even if another process has set them.

        Returns:
            True if at least one node had a key with this identifier, else False.

        Raises:
            LockRuntimeError: No majority of the nodes answered, or the manager is destroyed.

        Safety: as `aioredlock_ng.Redlock.force_release`.
        """
        redlock = await self.redlock()
        with in_words_of_aioredlock():
            return await redlock.force_release(name_of(resource), token=token_of(identifier)) > 0

    async def prolong(self, resource: str | bytes | float, identifier: object, ttl: float) -> float:
        """Let the lock's keys with this identifier live for at least `ttl` seconds from now.

        The call extends the keys even if another process has set them.

        Returns:
            Seconds for which the lock is certainly held.

        Raises:
            LockLost: Too many nodes have no key with this identifier, so no majority is possible.
            QuorumUnreachable: No majority confirmed the extension.
            ConfigurationError: The ttl is invalid.
            LockRuntimeError: The manager is destroyed.

        Safety: a cancelled call may or may not extend the keys.
        """
        operator, name = Operator(await self.redlock()), name_of(resource)
        options, started = operator.options, operator.now()
        ttl = options.check_ttl(ttl)
        key = KeyFormat(options.key_format).key(name)
        replies = await operator.poll(Command(_PROLONG, (key,), (_token(identifier), ttl_ms(ttl))))
        votes = tuple(
            _vote(node.address, reply) for node, reply in zip(operator.nodes, replies, strict=True)
        )
        elapsed = operator.now() - started
        if sum(vote.outcome is Outcome.GRANTED for vote in votes) >= operator.quorum:
            return deadline_of(started, ttl, options.drift(ttl)) - operator.now()
        if sum(vote.outcome is Outcome.HELD for vote in votes) > len(votes) - operator.quorum:
            told = (
                f"the lock {resource!r} is not held by this identifier: it was released, has"
                " expired, or belongs to another client"
            )
            raise LockLost(told, resource=str(name), votes=votes, elapsed=elapsed)
        told = (
            f"the lock {resource!r} could not be extended, no quorum confirmed it:"
            f" {'; '.join(map(str, votes))}"
        )
        raise QuorumUnreachable(told, resource=str(name), votes=votes, elapsed=elapsed)

    async def destroy(self) -> None:
        """Close the manager for good.

        Raises:
            LockRuntimeError: The call comes from another event loop or a forked process. Nothing
                was closed.

        Safety: as `aioredlock_ng.Redlock.aclose`. A cancelled call may be repeated.
        """
        async with self._opening:
            with in_words_of_aioredlock():
                await self._redlock.aclose()
            self.destroyed = True


def _token(identifier: object) -> bytes:
    """Return the bytes that aioredis writes for an identifier.

    Raises:
        ConfigurationError: The identifier cannot be encoded as UTF-8.
    """
    if isinstance(identifier, bytes):
        return identifier
    try:
        return str(identifier).encode()
    except UnicodeEncodeError:
        raise ConfigurationError(
            f"identifier {identifier!r} has a lone surrogate and cannot be UTF-8; pass bytes"
            " instead"
        ) from None


def _prolonged(reply: object, _call: Call) -> KeyState | None:
    """Decode the reply of prolong.lua. Return None if the reply is unknown."""
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
            return Vote(address, Outcome.HELD, detail="the key has another value")
    return no_vote(address, reply)
