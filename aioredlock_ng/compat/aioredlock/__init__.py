"""Provide the API of aioredlock 0.7.3 on top of this library, as a bridge for a migration.

Change `from aioredlock import …` to `from aioredlock_ng.compat.aioredlock import …`. The submodules
`algorithm`, `errors`, `lock` and `sentinel` have their original names. Keys and values on the nodes
are those of aioredlock, so old and new processes exclude each other while both run.
docs/migrating.md lists the differences.
"""

from aioredlock_ng.compat.aioredlock.algorithm import Aioredlock
from aioredlock_ng.compat.aioredlock.errors import (
    AioredlockError,
    LockAcquiringError,
    LockError,
    LockRuntimeError,
)
from aioredlock_ng.compat.aioredlock.lock import Lock
from aioredlock_ng.compat.aioredlock.sentinel import Sentinel, SentinelConfigError

__all__ = [
    "Aioredlock",
    "AioredlockError",
    "Lock",
    "LockAcquiringError",
    "LockError",
    "LockRuntimeError",
    "Sentinel",
    "SentinelConfigError",
]
