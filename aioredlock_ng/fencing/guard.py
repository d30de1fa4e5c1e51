"""Checks fences for a service that owns its resources, in the memory of its process; it never touches the resources."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from aioredlock_ng._core.keys import name_bytes
from aioredlock_ng.options import whole_number

from .fence import StaleFence, usable_fence

__all__ = ["FenceGuard"]

# One floor for all would let a single fence from a clock an hour ahead, once forgotten, shut out everybody for an hour.
_FLOORS: Final = 1024


class FenceGuard:
    """Remembers the newest fence of each resource and refuses older ones. Threads may share it.

    Check at the first read and at every write, and let nothing come between a check and what it permits: no `await`, or
    one mutex around both.

    Memory is bounded: above `max_resources` the resource whose last check is longest ago is forgotten. Its fence then
    becomes a floor for one in 1,024 of all names, its own among them: a name that is not remembered counts as having
    seen its floor. So nothing stale ever passes because something was forgotten. The price is that a current holder can
    be refused, and must acquire the lock again, when `max_resources` other resources were checked since its own last
    check, or since it acquired the lock.

    Args:
        max_resources: How many resources are remembered, at least 1, at some 200 bytes each. Take many times as many as
            are locked at once.
        floor: The least fence accepted for anything. A new process remembers nothing: give it the time of its start in
            microseconds, `time.time_ns() // 1000`, and it refuses leases that are older (as exactly as the clocks of
            those who acquire agree with its own). Or keep the fences with the data, where they survive.

    Raises:
        ConfigurationError: An argument is out of range.
    """

    def __init__(self, *, max_resources: int, floor: int = 0) -> None:
        self._max = whole_number("max_resources", max_resources, 1)
        self._floors = [usable_fence(floor, "floor")] * _FLOORS
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        """How many resources are remembered."""
        return len(self._seen)

    def check(self, resource: str | bytes, fence: int | None) -> None:
        """Let the holder of this fence go on, and from now on nobody with an older one. No I/O.

        Args:
            resource: The name; text and its UTF-8 are the same, as they are for locks.
            fence: `lease.fence` of a lock on that resource.

        Raises:
            StaleFence: A newer fence was seen.
            ConfigurationError: The fence is None, as without fencing, or cannot be one: no int, negative, above `MAX_FENCE`;
                or the name is no text and no bytes, or empty.
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
