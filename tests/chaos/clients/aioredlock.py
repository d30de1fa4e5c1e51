"""The workload's way to aioredlock 0.7.3, with its watchdog; runs in an environment of its own."""

from __future__ import annotations

import asyncio
import contextlib
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..history import SHOWN
from .port import NotGot, Unfenced

if TYPE_CHECKING:
    from .port import Body, Wish

__all__ = ["Aioredlock", "make"]

_AGAIN = (0.02, 0.1)


class LockHold:
    """A lock of aioredlock: it has no deadline and no fence, and nobody is told of its loss."""

    fence: int | None = None
    slot: int | None = None
    since: int | None = None
    votes = ""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.token = str(lock.id)[:SHOWN]

    def deadline(self) -> int | None:
        """It does not say."""
        return None

    def lost(self) -> str:
        """Its flag, which the watchdog clears when it gives up; a holder has to ask."""
        return "" if self._lock.valid else "valid is False"

    def lost_at(self) -> int | None:
        """It does not say."""
        return None

    async def wait_lost(self) -> None:
        """Nobody tells."""
        await asyncio.get_running_loop().create_future()


class Aioredlock(Unfenced):
    """One manager over all nodes."""

    async def open(self, task: dict[str, Any]) -> None:
        """Make the manager, which connects when it is first used."""
        self._module = import_module("aioredlock")
        self._manager = self._module.Aioredlock(
            task["urls"],
            internal_lock_timeout=task["ttl"],
            retry_count=8,
            retry_delay_min=_AGAIN[0],
            retry_delay_max=_AGAIN[1],
        )

    async def hold(self, wish: Wish, body: Body) -> bool:
        """Lock the first name. The library has no locks of several names."""
        try:
            lock = await self._manager.lock(wish.names[0])
        except self._module.LockError as error:
            raise NotGot(type(error).__name__) from None
        try:
            await body(LockHold(lock))
        finally:
            with contextlib.suppress(Exception):
                await self._manager.unlock(lock)
        return True

    async def close(self) -> None:
        """Unlock and disconnect."""
        await self._manager.destroy()


def make() -> Aioredlock:
    """Make the client of this process."""
    return Aioredlock()
