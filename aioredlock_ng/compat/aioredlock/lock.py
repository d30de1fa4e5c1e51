"""aioredlock's lock object. It asks no node itself."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Self

from aioredlock_ng.compat.aioredlock.errors import LockError

if TYPE_CHECKING:
    from types import TracebackType

    from aioredlock_ng import Lease
    from aioredlock_ng.compat.aioredlock.algorithm import Aioredlock

__all__ = ["Lock"]


class Lock:
    """A lock of an `Aioredlock`, returned by its `lock` and `get_lock`.

    A lock made by hand from a name and an identifier stands for the lock with that identifier, whichever manager acquired it.

    Args:
        lock_manager: Its manager.
        resource: Its name.
        id: Its identifier: the token that its keys hold, or the `lock_identifier` that `lock()` was given.
        lock_timeout: Seconds that it lives; None: until it is released.
        valid: Value of `valid` of a lock that is made by hand, without a lease.

    Attributes:
        lock_manager: As given.
        resource: As given.
        id: As given.
        lock_timeout: As given.
        lease: The `aioredlock_ng.Lease` behind it: `remaining()`, `check()`, `await wait_lost()`. None if another manager
            acquired the lock.
    """

    def __init__(
        self,
        lock_manager: Aioredlock,
        resource: Any,
        id: Any,  # noqa: A002 - aioredlock's own name
        lock_timeout: float | None = 10.0,
        valid: bool = False,
    ) -> None:
        self.lock_manager = lock_manager
        self.resource = resource
        self.id = id
        self.lock_timeout = lock_timeout
        self.lease: Lease | None = None
        self._until = math.inf if valid else 0.0

    @property
    def valid(self) -> bool:
        """True while the lock may be relied on; False once it is released, lost or expired. No I/O.

        A lock that another manager acquired counts down the life that the nodes said it had left. One that is made by hand
        says what it was given until it is extended or released.
        """
        return time.monotonic() < self._until if self.lease is None else self.lease.valid

    def leased(self, lease: Lease | None) -> Self:
        """Bind it to a lease. For `Aioredlock`."""
        self.lease = lease
        return self

    def ending_in(self, seconds: float) -> Self:
        """Set how long it is valid if it has no lease. For `Aioredlock`."""
        self._until = time.monotonic() + seconds
        return self

    def prolonged(self, seconds: float) -> None:
        """Note that it is valid for at least so long. For `Aioredlock`."""
        until = time.monotonic() + seconds
        self._until = until if math.isinf(self._until) else max(self._until, until)

    async def extend(self) -> None:
        """See `Aioredlock.extend`.

        Safety: as `aioredlock_ng.Lease.extend`.
        """
        await self.lock_manager.extend(self)

    async def release(self) -> None:
        """See `Aioredlock.unlock`.

        Safety: as `aioredlock_ng.Lease.release`.
        """
        await self.lock_manager.unlock(self)

    async def is_locked(self) -> bool:
        """See `Aioredlock.is_locked`.

        Safety: cancelled, nothing has changed.
        """
        return await self.lock_manager.is_locked(self)

    async def __aenter__(self) -> Self:
        """Return itself; the lock is held already."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """See `Aioredlock.unlock`; an exception of the body wins, with a note. The body is not cancelled on loss."""
        try:
            await self.lock_manager.unlock(self)
        except LockError as error:
            if exc is None:
                raise
            exc.add_note(str(error))

    def __eq__(self, other: object) -> bool:
        """Equal by manager, name and identifier."""
        return isinstance(other, Lock) and other._key() == self._key()

    def __hash__(self) -> int:
        """By the same."""
        return hash(self._key())

    def __repr__(self) -> str:
        """Name, state, and the beginning of the identifier."""
        return f"Lock(resource={self.resource!r}, id='{str(self.id)[:6]}…', lock_timeout={self.lock_timeout}, valid={self.valid})"

    def _key(self) -> tuple[int, Any, Any]:
        return id(self.lock_manager), self.resource, self.id
