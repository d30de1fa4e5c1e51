"""Runs workers that acquire the same names again and again, and records their holds and waits."""

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
        """The longest wait of all workers, in seconds."""
        return max(self.waits.values())


async def holds(
    work: dict[str, tuple[Process, tuple[str, ...]]], hold: float, seconds: float
) -> Holds:
    """Let each worker acquire its lock again as soon as it has released the lock.

    Args:
        work: For each worker its process and the names of its lock.
        hold: Seconds of each hold.
        seconds: Seconds after which no worker acquires again.
    """
    loop = asyncio.get_running_loop()
    end, result = loop.time() + seconds, Holds()

    async def again(worker: str, process: Process, names: tuple[str, ...]) -> None:
        while loop.time() < end:
            began = loop.time()
            async with process.lock(*names):
                result.counts[worker] += 1
                result.waits[worker] = max(result.waits.get(worker, 0.0), loop.time() - began)
                await asyncio.sleep(hold)

    async with asyncio.TaskGroup() as group:
        for worker, (process, names) in work.items():
            group.create_task(again(worker, process, names))
    return result
