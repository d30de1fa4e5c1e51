"""aioredlock 0.7.3 by its own names, over this library; it is a bridge for moving over, and gets no features of its own.

Change `from aioredlock import …` to `from aioredlock_ng.compat.aioredlock import …`. Keys and their values are those that
aioredlock writes and reads, so old and new processes exclude each other while both run. docs/migrating.md says what differs.
"""

from aioredlock_ng.compat._errors import AioredlockError, LockAcquiringError, LockError, LockRuntimeError, SentinelConfigError
from aioredlock_ng.compat._lock import Lock
from aioredlock_ng.compat._manager import Aioredlock
from aioredlock_ng.compat._sentinel import Sentinel

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
