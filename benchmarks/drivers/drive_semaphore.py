"""Drive semaphores of aioredlock_ng, as `drive_ours.py` drives its locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import drive_ours
import load

from aioredlock_ng import Redlock

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aioredlock_ng import Lease

LIMIT = 8
"""The limit if the task has none."""


class Client(drive_ours.Client):
    """Acquire and release slots of semaphores."""

    def __init__(self, redlock: Redlock, limit: int) -> None:
        super().__init__(redlock)
        self._limit = limit

    def acquire(self, key: str) -> Awaitable[Lease]:
        return self._redlock.semaphore(key, self._limit).acquire()


async def connect(task: dict[str, Any]) -> Client:
    redlock = await Redlock(task["urls"], ttl=task["ttl"], **task.get("options", {})).open()
    return Client(redlock, task.get("limit", LIMIT))


if __name__ == "__main__":
    load.main(connect)
