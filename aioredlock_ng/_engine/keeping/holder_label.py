"""Ask the nodes for the label of a lock's holder, so that an error can name the holder.

No decision depends on the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioredlock_ng._core.inspection import holder_label
from aioredlock_ng._core.owners import owner_key

if TYPE_CHECKING:
    import asyncio

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.fleet import Fleet
    from aioredlock_ng._scripts.exclusive_kinds import LockKind
    from aioredlock_ng.options import Options

__all__ = ["Look", "Looks", "Surroundings"]


class Surroundings(Protocol):
    """The parts of `Context` that a `Look` needs.

    `Context` refers to `Labels`, and `Labels` refers to this module. So this module cannot import
    `Context`.
    """

    loop: asyncio.AbstractEventLoop
    fleet: Fleet
    quorum: int
    options: Options

    def clock(self) -> float:
        """Return the time of the engine's clock, in seconds."""


class Looks:
    """The requests by which one manager reads labels.

    Each key has at most one request at a time, which all waiters of the key share.
    """

    def __init__(self) -> None:
        self._open: dict[bytes, Look] = {}

    def ask(self, context: Surroundings, kind: LockKind, key: bytes) -> Look:
        """Request the label of the key's holder, or return the request that is under way."""
        look = self._open.get(key)
        if look is None:
            look = self._open[key] = Look(context, kind, key, self._open)
            context.fleet.ask(look)
        return look


class Look:
    """One request to all nodes for the label of a key's holder. A look is a `Sink`.

    The request ends when the answers decide the label, or at the node timeout.

    Attributes:
        label: The label of the holder; None until the request ends, or if no label was found.
    """

    def __init__(
        self, context: Surroundings, kind: LockKind, key: bytes, looks: dict[bytes, Look]
    ) -> None:
        self.command = kind.inspecting((key,), (owner_key(key),))
        self.started = context.clock()
        self._loop = context.loop
        self._key = key
        self._looks = looks
        self._quorum = context.quorum
        self._replies: list[Reply] = [None] * len(context.fleet.nodes)
        self._waiters: list[asyncio.Future[None]] = []
        self.label: str | None = None
        self._timer = context.loop.call_later(context.options.node_timeout, self._end, None)

    def stands(self) -> bool:
        return self._looks.get(self._key) is self

    def deliver(self, index: int, reply: Reply) -> None:
        self._replies[index] = reply
        decided, label = holder_label(self._replies, self._quorum)
        if decided and self.stands():
            self._end(label)

    async def ended(self) -> str | None:
        """Wait for the end of the request, and return the label.

        Safety: a cancellation ends only the wait.
        """
        if self.stands():
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
        return self.label

    def _end(self, label: str | None) -> None:
        del self._looks[self._key]
        self._timer.cancel()
        self.label = label
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
