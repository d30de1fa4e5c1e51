"""Drive one other library in an environment of its own, by commands that are lines of JSON.

This program never imports aioredlock_ng.

`peer.py LIBRARY URL…` reads `{"do": "acquire", "name": …, "ttl": seconds}`, `{"do": "release"}`,
`{"do": "value"}` or `{"do": "count", "name": …, "file": …, "seconds": …}` and answers each with one
line. The answers are: whether the lock was acquired, None, the value of the lock's keys, and the
number of additions.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any


class Peer:
    """Carry out the commands with one library, by that library's own names and meanings."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.lock: Any = None

    async def acquire(self, name: str, ttl: float) -> bool:
        """Try once to acquire a lock. Return True if the library got it."""
        raise NotImplementedError

    async def release(self) -> None:
        """Release the lock."""
        raise NotImplementedError

    def value(self) -> str:
        """Return the value that the library wrote to the keys of the lock."""
        raise NotImplementedError

    async def count(self, name: str, file: Path, seconds: float) -> int:
        """Add one to the number in a file under the lock, until the time is over.

        Return the number of additions, which is at least one.
        """
        counted, end = 0, time.monotonic() + seconds
        while time.monotonic() < end or not counted:
            if not await self.acquire(name, 30.0):
                await asyncio.sleep(0.001)
                continue
            before = int(file.read_text())
            await asyncio.sleep(0.001)
            file.write_text(str(before + 1))
            counted += 1
            await self.release()
        return counted


class Aioredlock(Peer):
    """One manager over all nodes."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(urls)
        self._module = import_module("aioredlock")
        self._manager = self._module.Aioredlock(urls, retry_count=1)

    async def acquire(self, name: str, ttl: float) -> bool:
        try:
            self.lock = await self._manager.lock(name, lock_timeout=ttl)
        except self._module.LockAcquiringError:
            return False
        return True

    async def release(self) -> None:
        await self._manager.unlock(self.lock)

    def value(self) -> str:
        return str(self.lock.id)


class RedisPy(Peer):
    """On the first node only."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(urls)
        self._client = import_module("redis.asyncio").Redis.from_url(urls[0])

    async def acquire(self, name: str, ttl: float) -> bool:
        self.lock = self._client.lock(name, timeout=ttl)
        return bool(await self.lock.acquire(blocking=False))

    async def release(self) -> None:
        await self.lock.release()

    def value(self) -> str:
        return str(self.lock.local.token.decode())


class Pottery(Peer):
    """An object per lock."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(urls)
        redis = import_module("redis.asyncio").Redis
        self._masters = [redis.from_url(url) for url in urls]

    async def acquire(self, name: str, ttl: float) -> bool:
        made = import_module("pottery").AIORedlock
        self.lock = made(key=name, masters=self._masters, auto_release_time=ttl)
        return bool(await self.lock.acquire(blocking=False))

    async def release(self) -> None:
        await self.lock.release()

    def value(self) -> str:
        return str(self.lock._uuid)


class RedlockNg(Peer):
    """One client over all nodes."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(urls)
        self._redlock = import_module("redlock").AsyncRedlock(urls, retry_count=0)

    async def acquire(self, name: str, ttl: float) -> bool:
        self.lock = await self._redlock.acquire(name, int(ttl * 1000))
        return self.lock is not None

    async def release(self) -> None:
        await self._redlock.release(self.lock)

    def value(self) -> str:
        return str(self.lock.value)


class RedlockPy(Peer):
    """One client over all nodes; it blocks."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(urls)
        self._redlock = import_module("redlock").Redlock(urls, retry_count=1, retry_delay=0.001)

    async def acquire(self, name: str, ttl: float) -> bool:
        self.lock = self._redlock.lock(name, int(ttl * 1000))
        return bool(self.lock)

    async def release(self) -> None:
        self._redlock.unlock(self.lock)

    def value(self) -> str:
        return str(self.lock.key.decode())


class PythonRedisLock(Peer):
    """On the first node only; it blocks."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(urls)
        self._client = import_module("redis").Redis.from_url(urls[0])

    async def acquire(self, name: str, ttl: float) -> bool:
        self.lock = import_module("redis_lock").Lock(self._client, name, expire=int(ttl))
        return bool(self.lock.acquire(blocking=False))

    async def release(self) -> None:
        self.lock.release()

    def value(self) -> str:
        return str(self.lock.id)


PEERS = {
    "aioredlock": Aioredlock,
    "redis-py": RedisPy,
    "pottery": Pottery,
    "redlock-ng": RedlockNg,
    "redlock-py": RedlockPy,
    "python-redis-lock": PythonRedisLock,
}


async def main(library: str, urls: list[str]) -> None:
    """Do what the lines say until there are none."""
    peer = PEERS[library](urls)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        task = json.loads(line)
        answer: object = None
        if task["do"] == "acquire":
            answer = await peer.acquire(task["name"], task["ttl"])
        elif task["do"] == "release":
            await peer.release()
        elif task["do"] == "count":
            answer = await peer.count(task["name"], Path(task["file"]), task["seconds"])
        else:
            answer = peer.value()
        print(json.dumps(answer), flush=True)  # noqa: T201 - its answer


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
