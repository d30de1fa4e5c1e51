"""One number in each kind of resource that can check fences: a service's memory, Redis, SQL."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from redis.asyncio import Redis

from aioredlock_ng.fencing import FenceGuard, RedisFence
from examples import fenced_sql

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator

__all__ = ["Memory", "Store", "open_store"]


class Store(Protocol):
    """A number that is 0 at first, with a guarded way to it and one past the guard."""

    async def read(self, fence: int) -> int:
        """Read for update."""

    async def write(self, value: int, fence: int) -> None:
        """Write, if the fence is not out of date."""

    async def peek(self) -> int:
        """Read without showing a fence."""

    async def poke(self, value: int) -> None:
        """Write without showing a fence."""


class Memory:
    """A service that owns the number."""

    def __init__(self) -> None:
        self._guard = FenceGuard(max_resources=10)
        self._value = 0

    async def read(self, fence: int) -> int:
        self._guard.check("number", fence)
        return self._value

    async def write(self, value: int, fence: int) -> None:
        self._guard.check("number", fence)
        self._value = value

    async def peek(self) -> int:
        return self._value

    async def poke(self, value: int) -> None:
        self._value = value


class RedisString:
    """A string key."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._guarded = RedisFence(client)

    async def read(self, fence: int) -> int:
        return int(await self._guarded.get("number", fence=fence) or 0)

    async def write(self, value: int, fence: int) -> None:
        await self._guarded.set("number", value, fence=fence)

    async def peek(self) -> int:
        return int(await self._client.get("number") or 0)

    async def poke(self, value: int) -> None:
        await self._client.set("number", value)


class RedisHash:
    """A field of a hash."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._guarded = RedisFence(client)

    async def read(self, fence: int) -> int:
        return int((await self._guarded.hgetall("order", fence=fence)).get(b"number", 0))

    async def write(self, value: int, fence: int) -> None:
        await self._guarded.hset("order", {"number": value}, fence=fence)

    async def peek(self) -> int:
        return int(await self._client.hget("order", "number") or 0)

    async def poke(self, value: int) -> None:
        await self._client.hset("order", "number", str(value))


class SQL:
    """A row."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    async def read(self, fence: int) -> int:
        return fenced_sql.read_for_update(self._db, "ann", fence)

    async def write(self, value: int, fence: int) -> None:
        fenced_sql.write(self._db, "ann", value, fence)

    async def peek(self) -> int:
        return int(self._db.execute("SELECT balance FROM account").fetchone()[0])

    async def poke(self, value: int) -> None:
        with self._db:
            self._db.execute("UPDATE account SET balance = ?", (value,))


@contextlib.asynccontextmanager
async def open_store(kind: str, url: str, file: str) -> AsyncIterator[Store]:
    """Open the number by its kind: that of a server, or that of a database file."""
    if kind == "memory":
        yield Memory()
    elif kind == "sql":
        with contextlib.closing(fenced_sql.connect(Path(file))) as db:
            yield SQL(db)
    else:
        async with Redis.from_url(url) as client:
            yield RedisString(client) if kind == "string" else RedisHash(client)
