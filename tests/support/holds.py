"""Workers that want the same names again and again, and how often and how late each was served."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.rig import Process

__all__ = ["Holds", "holds"]


@dataclass
class Holds:
    """The holds and waits of the workers of a test.

    Attributes:
        counts: How often each worker had its lock.
        waits: The longest wait of each worker, in seconds.
    """

    counts: Counter[str] = field(default_factory=Counter)
    waits: dict[str, float] = field(default_factory=dict)

    @property
    def longest(self) -> float:
        """The longest wait of all."""
        return max(self.waits.values())


async def holds(
    work: dict[str, tuple[Process, tuple[str, ...]]], hold: float, seconds: float
) -> Holds:
    """Let each worker want its lock again as soon as it gave it up."""
    loop = asyncio.get_running_loop()
    end, told = loop.time() + seconds, Holds()

    async def again(who: str, process: Process, names: tuple[str, ...]) -> None:
        while loop.time() < end:
            began = loop.time()
            async with process.lock(*names):
                told.counts[who] += 1
                told.waits[who] = max(told.waits.get(who, 0.0), loop.time() - began)
                await asyncio.sleep(hold)

    async with asyncio.TaskGroup() as group:
        for who, (process, names) in work.items():
            group.create_task(again(who, process, names))
    return told
