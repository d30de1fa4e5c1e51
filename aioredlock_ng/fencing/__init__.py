"""Check fences at the resource that a lock protects, as docs/fencing.md explains.

A holder sends `lease.fence` with its first read and with every write. The resource refuses a fence
below the newest fence that it has seen.
"""

from .fence import MAX_FENCE, StaleFence
from .guard import FenceGuard
from .redis_fence import GUARD_SCRIPT, RedisFence

__all__ = ["GUARD_SCRIPT", "MAX_FENCE", "FenceGuard", "RedisFence", "StaleFence"]
