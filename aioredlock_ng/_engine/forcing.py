"""Takes a lock away from who holds it, and not from who is about to get it; it decides nothing about when."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from aioredlock_ng._core.keys import as_text
from aioredlock_ng._engine.round import FIRST_SHARE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._scripts import Command
    from aioredlock_ng._scripts.kinds import LockKind

__all__ = ["force_release"]

_LONGEST_ATTEMPT = 2 + FIRST_SHARE
"""Node timeouts: the share of those asked first, then all nodes, then once more for the fence."""


async def force_release(
    context: Context,
    ask: Callable[[Command], Awaitable[list[Reply]]],
    kind: LockKind,
    key: bytes,
    slot: bytes,
    only: str | None = None,
) -> list[Reply]:
    """Delete a lock's key by the token of who holds it.

    Deleting whatever is there could hit one of the nodes that an attempt under way has been granted: its client would
    count on a majority that is none, and the next one would get the lock as well.

    Where no token has a majority, what is there is either an attempt, which is won or undone in time if its client waits no
    longer for nodes than we do, or left over: the latter is still there then, and is deleted.

    Args:
        context: The engine's surroundings.
        ask: Asks all nodes, and raises where fewer than a quorum answer: a look at fewer may miss the holder.
        kind: Which scripts.
        key: The lock's key.
        slot: Its fence counter.
        only: The token that may be deleted, as a `LockInfo` has it; None: whatever is there.

    Returns:
        What each node answered: how many keys it deleted.

    Safety: cancelled, it has deleted the key on all nodes that answer, or on none.
    """
    look = kind.inspecting((key,))
    seen = Counter(_tokens(await ask(look)))
    tokens = {token for token, count in seen.items() if count >= context.quorum}
    if seen and not tokens:
        await asyncio.sleep(_LONGEST_ATTEMPT * context.patience)
        tokens = seen.keys() & set(_tokens(await ask(look)))
    if only is not None:
        tokens = {token for token in tokens if as_text(token) == only}
        if not tokens:
            # Not even the counters are raised: whoever came after may need to repair its keys.
            return [0] * len(context.fleet.nodes)
    fence = context.fences.propose(context.wall_us(), (slot,))
    return await ask(kind.force_releasing((key,), (slot,), fence, tuple(tokens)))


def _tokens(replies: list[Reply]) -> list[bytes]:
    """What the key holds, on those nodes that have it and can tell."""
    return [reply[0][1] for reply in replies if type(reply) is list and reply[0][0] != -2]
