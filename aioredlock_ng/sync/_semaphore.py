"""Define the semaphore for threads. At most `limit` clients hold a semaphore at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng.sync._lock import Lock, right_use
from aioredlock_ng.usage import call_of, unsupported

if TYPE_CHECKING:
    from typing import Any

    import aioredlock_ng
    from aioredlock_ng.records import SemaphoreInfo
    from aioredlock_ng.sync._lock import Manager, OnLost

__all__ = ["Semaphore"]


@unsupported(
    "async with",
    "await",
    instead=lambda semaphore: right_use(
        call_of("semaphore", semaphore.resources[0], f", {semaphore.limit}")
    ),
)
class Semaphore(Lock):
    """A named semaphore, made by `Redlock.semaphore` and used like a `Lock`.

    `aioredlock_ng.Semaphore` explains the slots. `lease.slot` is the number of a lease's slot. A
    thread may hold several slots.

    `acquire` and `try_acquire` raise the errors of `Lock`. `LockHeld` and `AcquireTimeout` mean
    that other clients held all slots.
    """

    __slots__ = ("_limit",)

    def __init__(
        self,
        manager: Manager,
        name: str | bytes,
        limit: int,
        options: dict[str, Any],
        on_lost: OnLost | None,
    ) -> None:
        self._limit = limit
        super().__init__(manager, (name,), options, on_lost)

    @property
    def limit(self) -> int:
        """Number of slots."""
        return self._limit

    def inspect(self) -> SemaphoreInfo:
        """Ask all nodes, in one round, who holds each slot and how many clients wait.

        See `aioredlock_ng.Semaphore.inspect`. Nothing is written.

        Raises:
            QuorumUnreachable: Too few nodes answered.
            RedlockClosed: The manager is closed.

        Safety: an interrupted call changes nothing.
        """
        here = self._manager.opened()
        return here.thread.run(self.described_by(here.redlock).inspect)

    def described_by(self, redlock: aioredlock_ng.Redlock) -> aioredlock_ng.Semaphore:
        """Return the asyncio semaphore with these settings.

        Internal: for `Lock`.
        """
        (name,) = self.resources
        return redlock.semaphore(name, self._limit, on_lost="flag", **self._options)
