"""Provide the manager, locks and leases for threads, with `with` in place of `async with`.

An event loop in a separate thread renews the leases, even while the program's threads are busy. One
manager serves all threads of a process. In a forked child, the first use of the manager opens it
anew, and the leases of the parent count as lost.

A thread cannot be cancelled. A loss is reported by `Lease.check`, by the `on_lost` callback, and at
the end of `with`.
"""

from contextlib import suppress
from importlib import import_module

from aioredlock_ng.sync._election import Election
from aioredlock_ng.sync._lease import Lease
from aioredlock_ng.sync._lock import Lock, OnLost
from aioredlock_ng.sync._options import (
    ElectionOptions,
    GuardOptions,
    LockOptions,
    RedlockOptions,
    RWLockOptions,
)
from aioredlock_ng.sync._redlock import Redlock
from aioredlock_ng.sync._rwlock import ReadLock, RWLock, WriteLock
from aioredlock_ng.sync._semaphore import Semaphore

__all__ = [
    "Election",
    "ElectionOptions",
    "GuardOptions",
    "Lease",
    "Lock",
    "LockOptions",
    "OnLost",
    "RWLock",
    "RWLockOptions",
    "ReadLock",
    "Redlock",
    "RedlockOptions",
    "Semaphore",
    "WriteLock",
]

# Import anyio's asyncio backend now. At its first use, anyio would import the backend by itself,
# which takes a tenth of a second, and every forked child would repeat the import.
with suppress(ImportError):
    import_module("anyio._backends._asyncio")
