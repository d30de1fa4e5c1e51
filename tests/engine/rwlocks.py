"""Readers and writers of one read-write lock, in several processes of a rig."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from aioredlock_ng.rwlock import RWLock
    from tests.support.rig import Process

__all__ = ["KEY", "NAME", "now", "reading", "rwlock", "writing"]

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
