"""Hold keys with the floor client, renewed in batches spread over a third of the ttl.

The driver compares deadlines only, so it does not notice a deleted key.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

import hold

from benchmarks.floor import Floor, Grant

_BATCH = 250
_AT_ONCE = 200


class Client:
    """Hold batches of keys.

    A batch is valid until its deadline. The deadline moves when a quorum has renewed the whole
    batch.
    """

    def __init__(self, floor: Floor, task: dict[str, Any]) -> None:
        self._floor = floor
        self._ttl: float = task["ttl"]
        self._quorum = len(task["urls"]) // 2 + 1
        self._loop = asyncio.get_running_loop()
        self._batches: list[list[Grant]] = []
        self._deadlines: list[float] = []
        self._renewing: asyncio.Task[None] | None = None
        self.versions = {"hiredis": version("hiredis")}

    async def hold(self, count: int) -> None:
        ttl_ms = int(self._ttl * 1000)
        grants: list[Grant] = []
        deadline = self._loop.time() + self._ttl
        for start in range(0, count, _AT_ONCE):
            names = [f"lease:{index}" for index in range(start, min(start + _AT_ONCE, count))]
            grants += await asyncio.gather(*(self._floor.acquire(name, ttl_ms) for name in names))
        self._batches = [grants[start : start + _BATCH] for start in range(0, count, _BATCH)]
        self._deadlines = [deadline] * len(self._batches)
        self._renewing = self._loop.create_task(self._renew(ttl_ms))

    def lost(self) -> dict[str, int]:
        return {}

    def valid(self) -> int:
        now = self._loop.time()
        pairs = zip(self._batches, self._deadlines, strict=True)
        return sum(len(batch) for batch, deadline in pairs if deadline > now)

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        self._floor.close()

    async def _renew(self, ttl_ms: int) -> None:
        pause = self._ttl / 3 / len(self._batches)
        due = self._loop.time()
        while True:
            for number, batch in enumerate(self._batches):
                self._floor.extend(batch, ttl_ms, self._counter(number, len(batch)))
                due += pause
                await asyncio.sleep(due - self._loop.time())

    def _counter(self, number: int, size: int) -> Any:
        deadline = self._loop.time() + self._ttl
        missing = self._quorum

        def answered(reply: object) -> None:
            nonlocal missing
            if reply == size:
                missing -= 1
                if missing == 0:
                    self._deadlines[number] = deadline

        return answered


async def connect(task: dict[str, Any]) -> Client:
    return Client(await Floor.connect(task["urls"]), task)


if __name__ == "__main__":
    hold.main(connect)
