"""Readers and writers of one read-write lock, in several processes of a rig."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.support.rig import WAY

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from aioredlock_ng.rwlock import RWLock
    from tests.support.rig import Process

__all__ = [
    "KEY",
    "NAME",
    "now",
    "only_the_last_reader_delays_a_writer",
    "reading",
    "rwlock",
    "writing",
]

NAME = "catalog"
KEY = NAME.encode()


def now() -> float:
    """Return the time of the loop."""
    return asyncio.get_running_loop().time()


def rwlock(process: Process, **options: Any) -> RWLock:
    """Return the lock, as an object of this process."""
    return process.redlock.rwlock(NAME, **options)


def reading(process: Process, **options: Any) -> asyncio.Task[Lease]:
    """Start a task that acquires the lock to read."""
    return asyncio.create_task(rwlock(process, **options).read().acquire())


def writing(process: Process, **options: Any) -> asyncio.Task[Lease]:
    """Start a task that acquires the lock to write."""
    return asyncio.create_task(rwlock(process, **options).write().acquire())


async def only_the_last_reader_delays_a_writer(
    process: Process, deadline: float, last: Lease
) -> None:
    """Check that after this deadline the last lease of a grant alone keeps a writer out."""
    await asyncio.sleep(deadline - now() + 0.001)
    writer = writing(process)
    await asyncio.sleep(0.5)
    assert not writer.done()
    assert await last.release()
    async with asyncio.timeout(10 * WAY):
        await (await writer).release()
