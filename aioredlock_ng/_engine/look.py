"""Asks the nodes for the label of a lock's holder, for the words of an error; nothing is ever decided by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._core.owners import holder_label, owner_key

if TYPE_CHECKING:
    import asyncio

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._scripts.kinds import LockKind

__all__ = ["Looks"]


class Looks:
    """The looks of one manager, one per key at a time: a crowd that gives up at once asks once."""

    def __init__(self) -> None:
        self._open: dict[bytes, _Look] = {}

    async def label(self, context: Context, kind: LockKind, key: bytes) -> str | None:
        """Return the label of the holder of `key`; None if it is free, unlabelled, or too few nodes answer in time.

        This takes the round trip of a majority of the nodes, `node_timeout` at most.

        Safety: cancelled, nothing has changed.
        """
        look = self._open.get(key)
        if look is None:
            look = self._open[key] = _Look(context, kind, key, self._open)
            context.fleet.ask(look)
        waiter: asyncio.Future[str | None] = context.loop.create_future()
        look.tell(waiter)
        return await waiter


class _Look:
    """One question to all nodes; see `Sink`."""

    def __init__(self, context: Context, kind: LockKind, key: bytes, looks: dict[bytes, _Look]) -> None:
        self.command = kind.inspecting((key,), (owner_key(key),))
        self.started = context.clock()
        self._key = key
        self._looks = looks
        self._quorum = context.quorum
        self._replies: list[Reply] = [None] * len(context.fleet.nodes)
        self._waiters: list[asyncio.Future[str | None]] = []
        self._label: str | None = None
        self._timer = context.loop.call_later(context.options.node_timeout, self._end, None)

    def stands(self) -> bool:
        """See `Sink.stands`."""
        return self._looks.get(self._key) is self

    def deliver(self, index: int, reply: Reply) -> None:
        """See `Sink.deliver`."""
        self._replies[index] = reply
        decided, label = holder_label(self._replies, self._quorum)
        if decided and self.stands():
            self._end(label)

    def tell(self, waiter: asyncio.Future[str | None]) -> None:
        """Resolve this future with the label, at once if the look is over already."""
        self._waiters.append(waiter)
        if not self.stands():
            self._end(self._label)

    def _end(self, label: str | None) -> None:
        if self.stands():
            del self._looks[self._key]
        self._timer.cancel()
        self._label = label
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(label)
