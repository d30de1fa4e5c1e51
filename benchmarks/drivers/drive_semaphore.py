"""Drives semaphores of aioredlock_ng, as `drive_ours.py` drives its locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import drive_ours
import load

from aioredlock_ng import Redlock

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aioredlock_ng import Lease

LIMIT = 8


class Client(drive_ours.Client):
    """`acquire` and `release` of semaphores."""

    def acquire(self, key: str) -> Awaitable[Lease]:
        return self._redlock.semaphore(key, LIMIT).acquire()


async def connect(task: dict[str, Any]) -> Client:
    return Client(await Redlock(task["urls"], ttl=task["ttl"], **task.get("options", {})).open())


if __name__ == "__main__":
    load.main(connect)
