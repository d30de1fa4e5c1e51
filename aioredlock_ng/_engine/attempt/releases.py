"""Releases of attempts and leases. Each release is queued at once, without an await.

A caller may wait for the answers to a release, or continue without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.replies import GRANTED, released
from aioredlock_ng._core.votes import may_have_set
from aioredlock_ng._engine.attempt.round import Round

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.spec import LockSpec
    from aioredlock_ng._scripts import Command

__all__ = ["Releases"]


class Releases:
    """Sends releases. On each connection a release follows the acquire that it undoes."""

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
        """Release the keys of an attempt on every node that may have set them.

        The method returns the round of the release, and awaits nothing. When it returns, the
        command is queued on each connection behind the acquire, so that no cancellation can prevent
        the release.

        A key that holds another token than `token` is left alone. The labels under `label_keys` are
        deleted, too.

        `replies` are the answers to the attempt so far. A node that certainly set nothing gets no
        release. `ttl` is the longest life of the keys in seconds. If a node refuses the release,
        the release is sent again during this time.
        """
        command = spec.kind.releasing(spec.keys, token, now + ttl, label_keys)
        return self._send(command, len(spec.keys), replies, now)

    def retire(self, command: Command, replies: list[Reply], now: float) -> Round:
        """Instead of a release, send a command that keeps the keys taken until `min_hold` is over.

        The command must have no KEYS besides the keys of the lock. `send` describes the other
        arguments.
        """
        return self._send(command, len(command.keys), replies, now)

    def _send(self, command: Command, keys: int, replies: list[Reply], now: float) -> Round:
        context = self._context
        for reply in replies:
            # Usually each node has granted or has not answered yet. The release then goes to all
            # nodes, without the slower call of `may_have_set` for each reply.
            if reply is not GRANTED and reply is not None:
                indexes = [i for i, reply in enumerate(replies) if may_have_set(reply)]
                release = Round(
                    context, command, released(keys), min(context.quorum, len(indexes)), now
                )
                release.ask_some(indexes)
                return release
        release = Round(context, command, released(keys), context.quorum, now)
        release.ask()
        return release
