"""Define the semaphore, which a limited number of clients hold at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._manager.inspecting import look_at_slots
from aioredlock_ng.lock import Lock
from aioredlock_ng.usage import call_of, unsupported

if TYPE_CHECKING:
    from aioredlock_ng.records import SemaphoreInfo

__all__ = ["Semaphore"]


def _right_use(semaphore: Semaphore) -> str:
    call = call_of("semaphore", semaphore.resources[0], f", {semaphore.limit}")
    return f"`async with {call}:`, or `lease = await {call}.acquire()`"


@unsupported("with", "await", instead=_right_use)
class Semaphore(Lock):
    """A named semaphore, made by `Redlock.semaphore` and used like a `Lock`.

    A semaphore consists of `limit` slots. Each slot is a lock with a quorum of its own. So there
    are never more holders than slots, even while nodes fail. If a minority of the nodes fails, all
    slots stay available. `lease.slot` is the number of the slot.

    The fence of a lease is greater than that of every earlier lease of the same slot.

    `acquire` and `try_acquire` raise the errors of `Lock`. `LockHeld` and `AcquireTimeout` mean
    that other clients held all slots.
    """

    __slots__ = ()

    @property
    def limit(self) -> int:
        """Number of slots."""
        slots = self._spec.slots
        assert slots is not None
        return slots.limit

    async def inspect(self) -> SemaphoreInfo:
        """Ask all nodes, in one round, who holds each slot and how many clients wait.

        Nothing is written. Processes with a greater limit may hold slots above this limit. The
        result does not contain these slots.

        Raises:
            QuorumUnreachable: Too few nodes answered.
            RedlockClosed: The manager is not open, or belongs to another loop or process.

        Safety: a cancelled call changes nothing.
        """
        return await look_at_slots(await self._source.opened_engine(), self._spec)

    def __repr__(self) -> str:
        return (
            f"<Semaphore {self.resource!r} limit={self.limit} ttl={self.ttl:g}"
            f" blocking_timeout={self._blocking_timeout}>"
        )
