"""Drive aioredlock in its own environment, with a given timeout.

With a given timeout aioredlock starts no watchdog, and is faster.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import load
from aioredlock import Aioredlock, Lock

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Client:
    """Acquire and release locks of one manager over all nodes."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._manager = Aioredlock(task["urls"], internal_lock_timeout=task["ttl"])
        self._ttl = task["ttl"]
        self.versions = {name: version(name) for name in ("aioredlock", "aioredis", "hiredis")}

    def acquire(self, key: str) -> Awaitable[Lock]:
        return self._manager.lock(key, lock_timeout=self._ttl)

    def release(self, lock: Lock) -> Awaitable[None]:
        return self._manager.unlock(lock)

    async def close(self) -> None:
        await self._manager.destroy()


async def connect(task: dict[str, Any]) -> Client:
    return Client(task)


if __name__ == "__main__":
    load.main(connect)
