"""Define the semaphore, which a limited number of holders have at a time."""

from __future__ import annotations

from reprlib import repr as shortened

from aioredlock_ng.lock import Lock
from aioredlock_ng.usage import async_with_only

__all__ = ["Semaphore"]


def _right_use(semaphore: Semaphore) -> str:
    call = f"redlock.semaphore({shortened(semaphore.resources[0])}, {semaphore.limit})"
    return f"`async with {call}:`, or `lease = await {call}.acquire()`"


@async_with_only(_right_use)
class Semaphore(Lock):
    """A named semaphore, made by `Redlock.semaphore`. It is used like a `Lock`.

    A semaphore consists of `limit` slots. Each slot is a lock of its own, with a quorum of its own,
    and `lease.slot` has its number. So there are never more holders than slots, also while nodes
    fail, and a minority of failed nodes takes away no slot.

    The fence of a lease is greater than that of every earlier lease of the same slot.

    `acquire` and `try_acquire` raise the errors of `Lock`. `LockHeld` and `AcquireTimeout` mean
    that others held all slots.
    """

    __slots__ = ()

    @property
    def limit(self) -> int:
        """Number of slots."""
        slots = self._spec.slots
        assert slots is not None
        return slots.limit

    def __repr__(self) -> str:
        """Show name, limit and settings."""
        return (
            f"<Semaphore {self.resource!r} limit={self.limit} ttl={self.ttl:g}"
            f" blocking_timeout={self._blocking_timeout}>"
        )
