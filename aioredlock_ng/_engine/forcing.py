"""Takes a lock away from who holds it, and from nobody who is about to get it; it decides nothing about when."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._scripts import Command
    from aioredlock_ng._scripts.kinds import LockKind

__all__ = ["force_release"]


async def force_release(
    context: Context,
    poll: Callable[[Command], Awaitable[list[Reply]]],
    kind: LockKind,
    key: bytes,
    slot: bytes,
) -> list[Reply]:
    """Delete a lock's key by the token of who holds it.

    Deleting whatever is there could hit one of the nodes that an attempt under way has been granted: its client would
    count on a majority that is none, and the next one would get the lock as well.

    Where no token has a majority, what is there is either an attempt, which is won or undone within the node timeout, or left
    over: the latter is still there after that time, and is deleted.

    Args:
        context: The engine's surroundings.
        poll: Asks all nodes; see `Engine.poll`.
        kind: Which scripts.
        key: The lock's key.
        slot: Its fence counter.

    Returns:
        What each node answered: how many keys it deleted.

    Safety: cancelled, it has deleted the key on all nodes that answer, or on none.
    """
    look = kind.inspecting((key,))
    seen = _tokens(await poll(look))
    counted = Counter(token for token in seen if token)
    tokens = {token for token, count in counted.items() if count >= context.quorum}
    if counted and not tokens:
        await asyncio.sleep(context.patience)
        still = _tokens(await poll(look))
        tokens = {token for token, before in zip(still, seen, strict=True) if token and token == before}
    fence = context.fences.propose(context.wall_us())
    return await poll(kind.force_releasing((key,), (slot,), fence, tuple(tokens)))


def _tokens(replies: list[Reply]) -> list[bytes]:
    """Per node: the token there; empty where there is none, or no answer, or what is there is no text."""
    return [reply[0][1] if type(reply) is list else b"" for reply in replies]
