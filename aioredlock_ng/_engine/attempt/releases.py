"""Releases: sent in the tick in which they are decided, owned here until answered. It never blocks a caller on a slow node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio

from aioredlock_ng._core.replies import GRANTED, released
from aioredlock_ng._core.votes import may_have_set
from aioredlock_ng._engine.attempt.round import Round

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.spec import LockSpec

__all__ = ["Releases", "outlast_cancellation"]


class Releases:
    """Sends releases behind the attempts that they undo."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def send(
        self,
        spec: LockSpec,
        token: bytes,
        replies: list[Reply],
        ttl: float,
        now: float,
        label_keys: tuple[bytes, ...] = (),
    ) -> Round:
        """Release on every node that may have set the attempt's keys.

        Nothing is awaited: when this returns, the commands are queued behind the acquire on each connection, so no
        cancellation can come between.

        Args:
            spec: Whose keys.
            token: The attempt's token; a key that holds another is left alone.
            replies: The answers to the attempt so far; nodes that certainly set nothing are not asked.
            ttl: Seconds that the keys live at most; a release is owed to an unreachable node for so long.
            now: The engine's clock.
            label_keys: Of the labels beside the keys, if there may be any.
        """
        context, keys = self._context, spec.keys
        command = spec.kind.releasing(keys, token, now + ttl, label_keys)
        for reply in replies:
            # Usually every node granted or has not answered: then nothing is called per node.
            if reply is not GRANTED and reply is not None:
                indexes = [i for i, reply in enumerate(replies) if may_have_set(reply)]
                release = Round(
                    context, command, released(len(keys)), min(context.quorum, len(indexes)), now
                )
                release.ask_some(indexes)
                return release
        release = Round(context, command, released(len(keys)), context.quorum, now)
        release.ask()
        return release


async def outlast_cancellation(
    unfinished: Callable[[], bool], wait: Callable[[], Awaitable[object]]
) -> None:
    """Go on waiting though the task is cancelled, in any way and again; what is waited for must be bounded in time."""
    # The scope keeps anyio's level cancellation out, the loop outlives further task.cancel() calls.
    with anyio.CancelScope(shield=True):
        while unfinished():
            try:
                await wait()
            except asyncio.CancelledError:
                continue
