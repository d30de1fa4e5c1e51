"""Forced release: delete the keys of a lock's holder, but not those of an attempt under way."""

from __future__ import annotations

import asyncio
from collections import Counter
from math import isinf
from typing import TYPE_CHECKING

from aioredlock_ng._core.keys import as_text
from aioredlock_ng._core.over_mark import over_mark
from aioredlock_ng._core.replies import ForceReleased, Held, NotALock, ReadLocked
from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioredlock_ng._core.inspection import Look
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._scripts import Command
    from aioredlock_ng._scripts.exclusive_kinds import LockKind

__all__ = ["force_release"]

_LONGEST_ATTEMPT = 2
"""Longest duration of an attempt, as a number of node timeouts. An attempt has a round for the
keys, and may have a second round for the fence."""


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
    """Delete the key of a lock on the nodes where the key has the holder's token.

    Keys with other tokens stay, because a node may just have granted an attempt of another client.
    If this key were deleted, that client would still count the node in its majority, and a second
    client could get the lock, too.

    If no token has a majority, each token belongs to an attempt under way or is left over. An
    attempt is won or undone within two node timeouts, unless its client has a longer node timeout
    than this manager. If a token is still on the nodes after two node timeouts, it counts as left
    over, and its keys are deleted.

    Args:
        context: The shared objects of the engine.
        ask: Asks all nodes. It raises an error if less than a quorum answers, because so few
            answers may not show the holder.
        kind: The kind of the lock, which builds the commands.
        key: The key of the lock, or of one slot of a semaphore.
        slot: The number of the fence counter for this key.
        only: The only token whose keys may be deleted, written as in `LockInfo`. None allows any
            token.
        any_key: True if keys of other types, and strings without expiry, may be deleted, too. No
            lock of this library has such a key.

    Returns:
        The number of keys that each node has deleted.

    Raises:
        ConfigurationError: Raised if the key cannot be a lock of this library, and `any_key` is
            False. In this case nothing was deleted.

    Safety: after a cancellation, the key is deleted on all nodes that answer, or on none.
    """

    def refuse(looks: Sequence[Look]) -> None:
        """Raise an error if there are keys that may not be deleted.

        If the argument `only` names a token, keys with other values are ignored.
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
    held = bool(tokens)
    if not held:
        refuse(looks)
    # Each reader needs a quorum of its own. One node that does not answer may hide a quorum.
    shared = any(isinstance(each, ReadLocked) for each in looks)
    if seen.keys() - tokens and (shared or not held):
        await asyncio.sleep(_LONGEST_ATTEMPT * context.patience)
        looks = await ask(look)
        if not held:
            refuse(looks)
        tokens |= seen.keys() & set(_tokens(looks, any_key=any_key))
    if only is not None:
        tokens = {token for token in tokens if as_text(token) == only}
    # With `any_key`, the next request also deletes keys of types that have no token.
    if not tokens and (only is not None or not any(isinstance(look, NotALock) for look in looks)):
        # The call must end here, because the next request would increase the fence counters. A node
        # with a higher counter would refuse to repair the keys of the present holder.
        return [0] * len(context.fleet.nodes)
    fence = context.fences.propose(context.wall_us(), (slot,))
    # The lease may end before the nodes get this request. During `min_hold`, the key then holds
    # `over_mark(token)` instead of the token. So the request names both values.
    values = (*tokens, *map(over_mark, tokens))
    answers = await ask(kind.force_releasing((key,), (slot,), fence, values, any_key=any_key))
    deleted = [answer.deleted if isinstance(answer, ForceReleased) else 0 for answer in answers]
    if not any(deleted):
        # A key that may not be deleted may have appeared since the nodes were asked, and causes an
        # error. If the first answer of a node already showed a key of this kind, the key causes no
        # error, because a token had a majority on the other nodes.
        refuse(
            [
                answer if _foreign(look) is None else ForceReleased(0)
                for look, answer in zip(looks, answers, strict=True)
            ]
        )
    return deleted


def _tokens(looks: Sequence[Look], *, any_key: bool) -> list[bytes]:
    """Return the tokens on the nodes, without the tokens of keys that must not be deleted."""
    readers = [reader for look in looks if isinstance(look, ReadLocked) for reader in look.readers]
    return [reader.token for reader in readers] + [
        look.token
        for look in looks
        if isinstance(look, Held) and (any_key or _foreign(look) is None)
    ]


def _foreign(look: Look) -> NotALock | None:
    """Return a description of a key that cannot be a lock; None for any other key.

    A string without expiry cannot be a lock of this library, because all its locks expire.
    """
    if isinstance(look, Held) and isinf(look.remaining):
        return NotALock("string", look.remaining)
    return look if isinstance(look, NotALock) else None


def _is_of(look: Look, token: str) -> bool:
    return isinstance(look, Held) and as_text(look.token) == token
