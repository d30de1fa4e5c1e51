"""Iterate over the leaders of an election in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aioredlock_ng
    from aioredlock_ng.sync._lock import Manager
    from aioredlock_ng.sync._standing import Seat

__all__ = ["Watch"]


class Watch:
    """The iterator of `Election.watch`."""

    def __init__(self, manager: Manager, seat: Seat) -> None:
        self._manager = manager
        self._seat = seat
        self._redlock: aioredlock_ng.Redlock | None = None
        self._leaders: AsyncIterator[str | None] | None = None

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> str | None:
        here = self._manager.opened()
        redlock = here.redlock

        async def advance() -> str | None:
            if self._leaders is None or self._redlock is not redlock:
                self._redlock, self._leaders = redlock, self._seat.of(redlock).watch()
            return await anext(self._leaders)

        return here.thread.run(advance, self._restart)

    async def _restart(self, _: str | None) -> None:
        """Begin the iteration anew, because no caller received the last label."""
        self._leaders = None
