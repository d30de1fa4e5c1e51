"""Drive the bare client on an event loop in another thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import load
from bare_thread import BareThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.floor import Grant


class Client:
    """Acquire and release keys of the bare client from coroutines."""

    def __init__(self, bare: BareThread) -> None:
        self._bare = bare
        self._loop = asyncio.get_running_loop()
        self.versions = bare.versions

    def acquire(self, key: str) -> asyncio.Future[Grant]:
        future, answered = self._awaited()
        self._bare.start_acquire(key, answered)
        return future

    def release(self, grant: Grant) -> asyncio.Future[Grant]:
        future, answered = self._awaited()
        self._bare.start_release(grant, answered)
        return future

    async def close(self) -> None:
        """Leave the connections to the end of the process."""

    def _awaited(self) -> tuple[asyncio.Future[Grant], Callable[[Grant], object]]:
        loop, future = self._loop, self._loop.create_future()
        return future, lambda grant: loop.call_soon_threadsafe(future.set_result, grant)


async def connect(task: dict[str, Any]) -> Client:
    return Client(BareThread(task["urls"], task["ttl"]))


if __name__ == "__main__":
    load.main(connect)
