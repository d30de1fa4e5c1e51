"""Hold leases that aioredlock_ng renews in the background."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import hold

from aioredlock_ng import Redlock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioredlock_ng import Lease

_AT_ONCE = 200


class Client:
    """The leases of one manager."""

    def __init__(self, redlock: Redlock) -> None:
        self._redlock = redlock
        self._leases: list[Lease] = []
        self.versions: dict[str, str] = {}

    async def hold(self, count: int) -> None:
        names = iter([f"lease:{index}" for index in range(count)])
        await asyncio.gather(*(self._take(names) for _ in range(_AT_ONCE)))

    def valid(self) -> int:
        return sum(lease.valid for lease in self._leases)

    def lost(self) -> dict[str, int]:
        return Counter(
            str(lease.lost_error()).rpartition(": ")[2] for lease in self._leases if lease.lost
        )

    async def close(self) -> None:
        await self._redlock.aclose()

    async def _take(self, names: Iterable[str]) -> None:
        for name in names:
            self._leases.append(await self._redlock.lock(name, auto_extend=True).acquire())


async def connect(task: dict[str, Any]) -> Client:
    return Client(await Redlock(task["urls"], ttl=task["ttl"]).open())


if __name__ == "__main__":
    hold.main(connect)
