"""Drive the floor client of `benchmarks.floor`."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import load

from benchmarks.floor import Floor

if TYPE_CHECKING:
    import asyncio


class Client:
    """Acquire and release locks of the floor. The handle is the key with its token."""

    def __init__(self, floor: Floor, ttl: float) -> None:
        self._floor = floor
        self._ttl_ms = int(ttl * 1000)
        self.versions = {"hiredis": version("hiredis")}

    def acquire(self, key: str) -> asyncio.Future[tuple[str, str]]:
        return self._floor.acquire(key, self._ttl_ms)

    def release(self, grant: tuple[str, str]) -> asyncio.Future[tuple[str, str]]:
        return self._floor.release(grant)

    async def close(self) -> None:
        self._floor.close()


async def connect(task: dict[str, Any]) -> Client:
    return Client(await Floor.connect(task["urls"]), task["ttl"])


if __name__ == "__main__":
    load.main(connect)
