"""The checking side of fencing, for those who own what a lock protects: see docs/fencing.md.

A holder shows `lease.fence` with its first read and with every write; the resource refuses what is older than it has seen.
"""

from .fence import MAX_FENCE, StaleFence
from .guard import FenceGuard
from .redis_fence import GUARD_SCRIPT, RedisFence

__all__ = ["GUARD_SCRIPT", "MAX_FENCE", "FenceGuard", "RedisFence", "StaleFence"]
