"""Drive the asyncio API from threads by anyio's blocking portal, without aioredlock_ng.sync."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import threads
from anyio.from_thread import start_blocking_portal
from threads_ours import VERSIONS

from aioredlock_ng import Redlock

if TYPE_CHECKING:
    from aioredlock_ng import Lease


class Client:
    """Acquire and release leases of one open manager.

    Each call waits for a task on the loop of the portal.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        # The process ends without closing the portal.
        self._open = ExitStack()
        self._portal = self._open.enter_context(start_blocking_portal())
        self._redlock = Redlock(task["urls"], ttl=task["ttl"])
        self._portal.call(self._redlock.open)
        self.versions = VERSIONS

    def acquire(self, key: str) -> Lease:
        return self._portal.call(self._redlock.lock(key).acquire)

    def release(self, lease: Lease) -> bool:
        return self._portal.call(lease.release)


if __name__ == "__main__":
    threads.main(Client)
