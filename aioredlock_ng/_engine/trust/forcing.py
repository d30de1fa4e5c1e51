"""Takes a lock away from who holds it, and not from who is about to get it; it decides nothing about when."""

from __future__ import annotations

import asyncio
from collections import Counter
from math import isinf
from typing import TYPE_CHECKING

from aioredlock_ng._core.keys import as_text
from aioredlock_ng._core.replies import ForceReleased, Held, NotALock
from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioredlock_ng._core.inspection import Look
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._scripts import Command
    from aioredlock_ng._scripts.kinds import LockKind

__all__ = ["force_release"]

_LONGEST_ATTEMPT = 2
"""Node timeouts: one round, then one more for the fence."""


async def force_release(
    context: Context,
    ask: Callable[[Command], Awaitable[list[Look]]],
    kind: LockKind,
    key: bytes,
    slot: bytes,
    only: str | None = None,
    *,
    any_key: bool = False,
) -> list[int]:
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
        any_key: Delete keys too that can be no locks of this library: keys of other types, and
            strings without expiry.

    Returns:
        For each node, how many keys it deleted.

    Raises:
        ConfigurationError: Such a key is in the way, and `any_key` is False; nothing was deleted.

    Safety: cancelled, it has deleted the key on all nodes that answer, or on none.
    """

    def refuse(looks: Sequence[Look]) -> None:
        """Raise if there are keys that may not be deleted; with `only`, if they hold that token."""
        told = []
        for node, look in zip(context.fleet.nodes, looks, strict=True):
            what = _foreign(look)
            if what is not None and (only is None or _is_of(look, only)):
                told.append(f"{node.address} ({what})")
        if told and not any_key:
            raise ConfigurationError(
                f"nothing was released: the key {as_text(key)!r} is no lock on {', '.join(told)};"
                " it may be somebody's data. Set key_format, which gives locks keys of their own."
                " any_key=True (release --any-key) deletes it"
            )

    look = kind.inspecting((key,))
    looks = await ask(look)
    seen = Counter(_tokens(looks, any_key=any_key))
    tokens = {token for token, count in seen.items() if count >= context.quorum}
    if not tokens:
        refuse(looks)
        if seen:
            await asyncio.sleep(_LONGEST_ATTEMPT * context.patience)
            looks = await ask(look)
            refuse(looks)
            tokens = seen.keys() & set(_tokens(looks, any_key=any_key))
    if only is not None:
        tokens = {token for token in tokens if as_text(token) == only}
        if not tokens:
            # Not even the counters are raised: whoever came after may need to repair its keys.
            return [0] * len(context.fleet.nodes)
    fence = context.fences.propose(context.wall_us(), (slot,))
    answers = await ask(
        kind.force_releasing((key,), (slot,), fence, tuple(tokens), any_key=any_key)
    )
    deleted = [answer.deleted if isinstance(answer, ForceReleased) else 0 for answer in answers]
    if not any(deleted):
        # It came since the look.
        refuse(answers)
    return deleted


def _tokens(looks: Sequence[Look], *, any_key: bool) -> list[bytes]:
    """What the key holds, on those nodes where it may be deleted for it."""
    return [
        look.token
        for look in looks
        if isinstance(look, Held) and (any_key or _foreign(look) is None)
    ]


def _foreign(look: Look) -> NotALock | None:
    """What there is, if it can be no lock of this library: those expire."""
    if isinstance(look, Held) and isinf(look.remaining):
        return NotALock("string", look.remaining)
    return look if isinstance(look, NotALock) else None


def _is_of(look: Look, token: str) -> bool:
    return isinstance(look, Held) and as_text(look.token) == token
