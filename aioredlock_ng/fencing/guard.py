"""Check fences in the memory of the process that owns the resources."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from aioredlock_ng._core.keys import name_bytes
from aioredlock_ng.options import whole_number

from .fence import StaleFence, usable_fence

__all__ = ["FenceGuard"]

# The fence of a forgotten name becomes a floor for a part of all names. With a single floor, one
# forgotten fence from a clock that is an hour ahead would refuse all names for an hour.
_FLOORS: Final = 1024


class FenceGuard:
    """Remember the newest fence of each resource and refuse older fences.

    Threads may share a guard.

    Check at the first read and at every write. Let nothing run between a check and the operation
    that it permits: no `await`, or one mutex around both.

    Memory is bounded. Above `max_resources` the guard forgets the resource with the oldest check.
    The forgotten fence becomes a floor for one in 1,024 of all names, this name included. A name
    that is not remembered counts as having seen its floor. An outdated fence is therefore never
    accepted because the guard forgot a newer fence.

    The floor has a price: a current holder can be refused and must then acquire the lock again.
    This happens if `max_resources` other resources were checked since its last check, or since it
    acquired the lock.

    Args:
        max_resources: Number of remembered resources, at least 1. Each needs about 200 bytes.
            Choose many times the number of resources that are locked at once.
        floor: The lowest fence accepted for any resource. A new process remembers nothing. With the
            time of its start in microseconds, `time.time_ns() // 1000`, it refuses leases that are
            older. The clocks of the lock's clients and of this process must agree for that. Fences
            stored with the data survive a restart without a floor.

    Raises:
        ConfigurationError: An argument is out of range.
    """

    def __init__(self, *, max_resources: int, floor: int = 0) -> None:
        self._max = whole_number("max_resources", max_resources, 1)
        self._floors = [usable_fence(floor, "floor")] * _FLOORS
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        """Return the number of remembered resources."""
        return len(self._seen)

    def check(self, resource: str | bytes, fence: int | None) -> None:
        """Accept this fence and refuse older fences from now on. No I/O.

        Args:
            resource: The name. A text and its UTF-8 bytes are the same name, as for locks.
            fence: `lease.fence` of a lock on that resource.

        Raises:
            StaleFence: The guard has seen a newer fence.
            ConfigurationError: The fence is None (a lock without fencing), no int, negative or
                above `MAX_FENCE`. Or the name is empty, or neither text nor bytes.
        """
        shown = usable_fence(fence)
        name = name_bytes("resource", resource)
        with self._mutex:
            newest = self._seen.get(name, self._floors[hash(name) % _FLOORS])
            if shown < newest:
                raise StaleFence(resource, shown, newest)
            self._seen[name] = shown
            self._seen.move_to_end(name)
            if len(self._seen) > self._max:
                forgotten, floor = self._seen.popitem(last=False)
                place = hash(forgotten) % _FLOORS
                self._floors[place] = max(self._floors[place], floor)
