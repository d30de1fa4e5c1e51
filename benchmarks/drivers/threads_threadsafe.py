"""Drive the asyncio API from threads by `asyncio.run_coroutine_threadsafe`."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import threads
from threads_ours import VERSIONS

from aioredlock_ng import Redlock

if TYPE_CHECKING:
    from aioredlock_ng import Lease


class Client:
    """Acquire and release leases of one open manager.

    Each call waits for a task on the loop of another thread.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._redlock = Redlock(task["urls"], ttl=task["ttl"])
        asyncio.run_coroutine_threadsafe(self._redlock.open(), self._loop).result()
        self.versions = VERSIONS

    def acquire(self, key: str) -> Lease:
        return asyncio.run_coroutine_threadsafe(
            self._redlock.lock(key).acquire(), self._loop
        ).result()

    def release(self, lease: Lease) -> bool:
        return asyncio.run_coroutine_threadsafe(lease.release(), self._loop).result()


if __name__ == "__main__":
    threads.main(Client)
