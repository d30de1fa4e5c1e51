"""Forced release: it takes a lock from its holder, but not from a client about to get it."""

from __future__ import annotations

import asyncio
from collections import Counter
from math import isinf
from typing import TYPE_CHECKING

from aioredlock_ng._core.keys import as_text
from aioredlock_ng._core.over import over_mark
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
"""The longest attempt in node timeouts: one round for the keys, and one for the fence."""


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
    """Delete the key of a lock by the token of its holder.

    Only keys with that token are deleted. Without this rule the deletion could hit a node that
    has just granted an attempt. The client of the attempt would count that node in its majority,
    and the next client would get the lock, too.

    If no token has a majority, each token belongs to an attempt under way or is left over. An
    attempt is won or undone within two node timeouts, unless its client waits longer for nodes
    than this manager. A token that is still there after that time is left over, and its keys are
    deleted.

    Args:
        context: The surroundings of the engine.
        ask: Asks all nodes. It raises if fewer than a quorum answer, because these may not include
            the holder.
        kind: The scripts of the lock.
        key: The key of the lock.
        slot: The slot of its fence counter.
        only: The token that may be deleted, as in `LockInfo`. None deletes any token.
        any_key: True if keys may be deleted that cannot be locks of this library. These are keys of
            other types, and strings without expiry.

    Returns:
        The number of keys that each node has deleted.

    Raises:
        ConfigurationError: The key cannot be a lock of this library, and `any_key` is False.
            Nothing was deleted.

    Safety: after a cancellation the key is deleted on all nodes that answer, or on none.
    """

    def refuse(looks: Sequence[Look]) -> None:
        """Raise if there are keys that may not be deleted.

        With `only`, only the keys that hold this token matter.
        """
        told = []
        for node, look in zip(context.fleet.nodes, looks, strict=True):
            what = _foreign(look)
            if what is not None and (only is None or _is_of(look, only)):
                told.append(f"{node.address} ({what})")
        if told and not any_key:
            raise ConfigurationError(
                f"nothing was released: on {', '.join(told)} the key {as_text(key)!r} is not a"
                " lock; it may be somebody's data. Set key_format, which gives locks keys of their"
                " own. any_key=True (release --any-key) deletes it"
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
            # The fence counters are not raised. The present holder may have to repair its keys, and
            # a node with a higher counter refuses that.
            return [0] * len(context.fleet.nodes)
    fence = context.fences.propose(context.wall_us(), (slot,))
    # The lease may end meanwhile, and leave its mark until the end of `min_hold`.
    values = (*tokens, *map(over_mark, tokens))
    answers = await ask(kind.force_releasing((key,), (slot,), fence, values, any_key=any_key))
    deleted = [answer.deleted if isinstance(answer, ForceReleased) else 0 for answer in answers]
    if not any(deleted):
        # A key that may not be deleted can have appeared after the first question.
        refuse(answers)
    return deleted


def _tokens(looks: Sequence[Look], *, any_key: bool) -> list[bytes]:
    """Return the tokens in the key on the nodes where the key may be deleted."""
    return [
        look.token
        for look in looks
        if isinstance(look, Held) and (any_key or _foreign(look) is None)
    ]


def _foreign(look: Look) -> NotALock | None:
    """Return the content of a key that cannot be a lock of this library, because locks expire."""
    if isinstance(look, Held) and isinf(look.remaining):
        return NotALock("string", look.remaining)
    return look if isinstance(look, NotALock) else None


def _is_of(look: Look, token: str) -> bool:
    return isinstance(look, Held) and as_text(look.token) == token
