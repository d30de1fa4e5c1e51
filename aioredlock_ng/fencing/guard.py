"""Check fences in the memory of the process that owns the resources."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from aioredlock_ng._core.keys import name_bytes
from aioredlock_ng._forks import call_in_children
from aioredlock_ng.options import whole_number

from .fence import StaleFence, usable_fence

__all__ = ["FenceGuard"]

# Number of floors. When the guard forgets a name, it raises one floor to the fence of the name. The
# floor applies to all names with the same hash modulo this number. With only one floor, one fence
# from a clock that is an hour ahead could make the guard refuse all forgotten names for an hour.
_FLOORS: Final = 1024


class FenceGuard:
    """Remembers the newest fence of each resource, and refuses older fences.

    Threads may share a guard. A forked child gets a copy of the guard, with all fences that the
    guard remembered at the fork.

    Check a fence at the first read and at every write. Let no other code run between a check and
    the operation that it permits. Use no `await` between the check and the operation, or hold one
    mutex around the two.

    Memory is bounded. Above `max_resources`, the guard forgets the resource with the oldest check,
    but keeps its fence as a lower limit. So the guard still refuses an outdated fence for this
    resource. To save memory, the same limit applies to about one in 1,024 of all other names that
    the guard does not remember.

    Because names share a limit, the guard may also refuse a current holder, who must then acquire
    the lock again. A refusal of this kind is possible if `max_resources` other resources were
    checked since the holder's last check, or since the grant if the holder has not checked yet.

    Args:
        max_resources: Number of remembered resources, at least 1. Each needs about 200 bytes.
            Choose many times the number of resources that are locked at the same time.
        floor: The lowest fence accepted for any resource. A new process remembers no fence. If the
            floor is the time of the process's start in microseconds, `time.time_ns() // 1000`, the
            guard refuses leases from before the start. For a floor from a clock, the clocks of the
            lock's clients and of this process must agree. A resource that stores fences beside its
            data needs no floor after a restart.

    Raises:
        ConfigurationError: An argument is out of range.
    """

    def __init__(self, *, max_resources: int, floor: int = 0) -> None:
        self._max = whole_number("max_resources", max_resources, 1)
        self._floors = [usable_fence(floor, "floor")] * _FLOORS
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._mutex = threading.Lock()
        call_in_children(self, FenceGuard._renew_mutex)

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
            ConfigurationError: The fence is None (a lock without fencing), is not an int, is
                negative or is above `MAX_FENCE`. Also raised if the name is empty, or is neither
                text nor bytes.
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

    def _renew_mutex(self) -> None:
        # A thread of the parent may have held the old mutex at the fork. In the child, nobody
        # releases that mutex.
        self._mutex = threading.Lock()
