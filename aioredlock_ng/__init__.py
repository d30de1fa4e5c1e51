"""Provide Redlock for asyncio: distributed locks over N independent Redis nodes.

An import opens no connection and imports no optional dependency.
"""

from aioredlock_ng._core.votes import Outcome, Vote
from aioredlock_ng._nodes.port import NodeState
from aioredlock_ng.election import Election, ElectionOptions
from aioredlock_ng.errors import (
    AcquireTimeout,
    ConfigurationError,
    LockHeld,
    LockLost,
    LockNotAcquired,
    LockReleased,
    QuorumUnreachable,
    RedlockClosed,
    RedlockError,
    UpgradeRefused,
)
from aioredlock_ng.lease import Lease
from aioredlock_ng.lock import Lock
from aioredlock_ng.options import Options
from aioredlock_ng.records import (
    ClockReading,
    Diagnosis,
    Finding,
    LockInfo,
    NodeAnswer,
    NodeFacts,
    Owner,
    Queued,
    ReaderInfo,
    Refused,
    RoundTrips,
    SemaphoreInfo,
    Severity,
    Stats,
)
from aioredlock_ng.redlock import Redlock
from aioredlock_ng.rwlock import ReadLock, RWLock, RWLockOptions, WriteLock
from aioredlock_ng.semaphore import Semaphore

__version__ = "0.1.0"

__all__ = [
    "AcquireTimeout",
    "ClockReading",
    "ConfigurationError",
    "Diagnosis",
    "Election",
    "ElectionOptions",
    "Finding",
    "Lease",
    "Lock",
    "LockHeld",
    "LockInfo",
    "LockLost",
    "LockNotAcquired",
    "LockReleased",
    "NodeAnswer",
    "NodeFacts",
    "NodeState",
    "Options",
    "Outcome",
    "Owner",
    "Queued",
    "QuorumUnreachable",
    "RWLock",
    "RWLockOptions",
    "ReadLock",
    "ReaderInfo",
    "Redlock",
    "RedlockClosed",
    "RedlockError",
    "Refused",
    "RoundTrips",
    "Semaphore",
    "SemaphoreInfo",
    "Severity",
    "Stats",
    "UpgradeRefused",
    "Vote",
    "WriteLock",
    "__version__",
]
