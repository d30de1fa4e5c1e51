"""aioredlock 0.7.3 by its own names, over this library. It is a bridge for moving over, and gets no features of its own.

Change `from aioredlock import …` to `from aioredlock_ng.compat.aioredlock import …`. The submodules `algorithm`, `errors`,
`lock` and `sentinel` have the names that they have there. Keys and their values are those that aioredlock writes and reads,
so old and new processes exclude each other while both run. docs/migrating.md lists the differences.
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
