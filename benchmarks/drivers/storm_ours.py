"""Run many holders while nodes hang, crash and lose their data.

The driver counts overlapping holders and fences that are not greater than the fence before. It
prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from aioredlock_ng import LockLost, LockNotAcquired, Redlock

if TYPE_CHECKING:
    from collections.abc import Callable

MANAGERS = 3
WORKERS = 8
NAMES = 12


class Book:
    """The number of holders and the last fence of each name."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.highest: dict[str, int] = {}
        self.acquired = self.overlaps = self.not_greater = self.lost = self.refused = 0

    def enter(self, name: str, fence: int | None) -> None:
        self.acquired += 1
        self.overlaps += self.inside[name] > 0
        self.inside[name] += 1
        if fence is not None:
            self.not_greater += fence <= self.highest.get(name, 0)
            self.highest[name] = fence

    def leave(self, name: str) -> None:
        self.inside[name] -= 1


async def main(task: dict[str, Any], say: Callable[[object], None]) -> None:
    """Run until there are enough acquisitions, or the time is up."""
    book = Book()
    options = {"ttl": task["ttl"], "max_ttl": task["ttl"], **task["options"]}
    managers = [await Redlock(task["urls"], **options).open() for _ in range(MANAGERS)]
    say({"ready": True})
    await asyncio.to_thread(sys.stdin.readline)
    until = time.monotonic() + task["seconds"]

    async def work(redlock: Redlock, number: int) -> None:
        while book.acquired < task["acquisitions"] and time.monotonic() < until:
            number += 5
            name = f"storm:{number % NAMES}"
            try:
                async with redlock.lock(name, blocking_timeout=1.0) as lease:
                    book.enter(name, lease.fence)
                    try:
                        await asyncio.sleep(0.05 if number % 97 == 0 else 0)
                    finally:
                        book.leave(name)
            except LockLost:
                book.lost += 1
            except LockNotAcquired:
                book.refused += 1

    began = time.monotonic()
    await asyncio.gather(
        *(work(redlock, number) for number in range(WORKERS) for redlock in managers)
    )
    took = time.monotonic() - began
    repairs = sum(redlock.stats().repairs for redlock in managers)
    say(
        {key: value for key, value in vars(book).items() if isinstance(value, int)}
        | {"repairs": repairs, "seconds": took}
    )
    for redlock in managers:
        await redlock.aclose()


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1]), _say))
