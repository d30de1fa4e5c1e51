"""Wait without any lock library.

The driver asks all nodes once a majority of the nodes has notified it of a changed key.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import hiredis
import wakeup

from benchmarks.floor import Floor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_TTL_MS = 10_000


class _Told(asyncio.BufferedProtocol):
    """A connection of the floor that also reads notifications."""

    def __init__(self, wire: Any, tell: Callable[[], None]) -> None:
        self._wire = wire
        self._tell = tell
        self._buffer = bytearray(65536)
        self._reader = hiredis.Reader()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self._reader.feed(self._buffer, 0, size)  # type: ignore[arg-type]
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, hiredis.PushNotification):
                self._tell()
            else:
                self._wire.pending.popleft()(reply)


class _Waiter:
    """Wait for one lock after the other."""

    def __init__(self, floor: Floor, quorum: int) -> None:
        self.floor = floor
        self._quorum = quorum
        self._name = ""
        self._told = 0
        self._granted: asyncio.Future[float] | None = None

    async def wait(self, name: str) -> asyncio.Future[float]:
        self.floor.watch(name)
        await asyncio.sleep(0.04)
        self._name, self._told = name, 0
        self._granted = asyncio.get_running_loop().create_future()
        return self._granted

    def tell(self) -> None:
        self._told += 1
        if self._told == self._quorum:
            self.floor.acquire(self._name, _TTL_MS).add_done_callback(self._ran)

    def _ran(self, grant: asyncio.Future[tuple[str, str]]) -> None:
        if self._granted is not None:
            self._granted.set_result(time.perf_counter())
        self.floor.release(grant.result())


@contextlib.asynccontextmanager
async def connect(urls: list[str]) -> AsyncIterator[wakeup.Wait]:
    floor = await Floor.connect(urls)
    waiter = _Waiter(floor, len(urls) // 2 + 1)
    await asyncio.gather(*(floor.listen(wire, _Told(wire, waiter.tell)) for wire in floor.wires))
    yield waiter.wait
    floor.close()


if __name__ == "__main__":
    wakeup.main(connect)
