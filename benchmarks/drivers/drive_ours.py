"""Drive aioredlock_ng by its public API, with every option at its default."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import load

from aioredlock_ng import Redlock

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aioredlock_ng import Lease


class Client:
    """Acquire and release leases of one open manager. By default the leases are renewed."""

    def __init__(self, redlock: Redlock) -> None:
        self._redlock = redlock
        self.versions = {name: _version(name) for name in ("aioredlock-ng", "redis", "hiredis")}

    def acquire(self, key: str) -> Awaitable[Lease]:
        return self._redlock.lock(key).acquire()

    def release(self, lease: Lease) -> Awaitable[bool]:
        return lease.release()

    async def close(self) -> None:
        await self._redlock.aclose()


async def connect(task: dict[str, Any]) -> Client:
    return Client(await Redlock(task["urls"], ttl=task["ttl"], **task.get("options", {})).open())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "checkout"


if __name__ == "__main__":
    load.main(connect)
