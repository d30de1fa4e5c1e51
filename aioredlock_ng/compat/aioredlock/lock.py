"""Provide aioredlock's lock object."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, Self

from aioredlock_ng._clock import boottime
from aioredlock_ng._notes import add_note
from aioredlock_ng.compat.aioredlock.errors import LockError

if TYPE_CHECKING:
    from types import TracebackType

    from aioredlock_ng import Lease

__all__ = ["Lock", "check_lock"]


class _Manager(Protocol):
    """The methods of `Aioredlock` that its locks call."""

    async def extend(self, lock: Lock) -> None:
        """Renew a lock."""

    async def unlock(self, lock: Lock) -> None:
        """Release a lock."""

    async def is_locked(self, resource_or_lock: Lock) -> bool:
        """Return True if a majority of the nodes has the key."""


class Lock:
    """A lock of an `Aioredlock`. The methods `lock` and `get_lock` of the manager return it.

    A lock made by hand from a name and an identifier stands for the lock with that identifier, even
    if another manager has acquired it. All arguments except `valid` are attributes as well.

    Args:
        lock_manager: The manager of the lock.
        resource: The name of the lock.
        id: The identifier, which is the token of the keys or the `lock_identifier` of `lock()`.
        lock_timeout: Seconds until the lock expires. None: the lock is renewed until its release.
        valid: Value of the property `valid` for a lock that is made by hand, without a lease.

    Attributes:
        lease: The `aioredlock_ng.Lease` of the lock, with `remaining()`, `check()` and
            `await wait_lost()`. None if another manager acquired the lock.
    """

    def __init__(
        self,
        lock_manager: _Manager,
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
        """True until the lock is released, lost or expired. The property does no I/O.

        Another manager's lock, returned by `get_lock`, is valid for the remaining time that the
        nodes reported. A lock made by hand has the value of the argument `valid` until it is
        extended or released.
        """
        return boottime() < self._until if self.lease is None else self.lease.valid

    def leased(self, lease: Lease | None) -> Self:
        """Bind the lock to a lease, and return the lock.

        Internal: for `Aioredlock`.
        """
        self.lease = lease
        return self

    def ending_in(self, seconds: float) -> Self:
        """Set the seconds for which a lock without a lease is valid, and return the lock.

        Internal: for `Aioredlock`.
        """
        self._until = boottime() + seconds
        return self

    def prolonged(self, seconds: float) -> None:
        """Record that the lock is valid for at least this number of seconds.

        Internal: for `Aioredlock`.
        """
        until = boottime() + seconds
        self._until = until if math.isinf(self._until) else max(self._until, until)

    async def extend(self) -> None:
        """Renew the lock by `Aioredlock.extend`.

        Safety: as `aioredlock_ng.Lease.extend`.
        """
        await self.lock_manager.extend(self)

    async def release(self) -> None:
        """Release the lock by `Aioredlock.unlock`.

        Safety: as `aioredlock_ng.Lease.release`.
        """
        await self.lock_manager.unlock(self)

    async def is_locked(self) -> bool:
        """Return True if a majority of the nodes has the key, even if other clients have set it.

        Safety: a cancelled call changes nothing.
        """
        return await self.lock_manager.is_locked(self)

    async def __aenter__(self) -> Self:
        """Return the lock, which is already held."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the lock by `Aioredlock.unlock`.

        If the body and the release both fail, the exception of the body propagates, and the error
        of the release becomes a note of that exception. A loss of the lock does not cancel the
        body.
        """
        try:
            await self.lock_manager.unlock(self)
        except LockError as error:
            if exc is None:
                raise
            add_note(exc, str(error))

    def __eq__(self, other: object) -> bool:
        """Compare by manager, name and identifier."""
        return isinstance(other, Lock) and other._key() == self._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"Lock(resource={self.resource!r}, id='{str(self.id)[:6]}…',"
            f" lock_timeout={self.lock_timeout}, valid={self.valid})"
        )

    def _key(self) -> tuple[int, Any, Any]:
        return id(self.lock_manager), self.resource, self.id


def check_lock(method: str, lock: object) -> None:
    """Check the argument of a method of the manager.

    Raises:
        TypeError: The argument is not a `Lock`.
    """
    if not isinstance(lock, Lock):
        raise TypeError(
            f"{method}() takes a Lock, not {type(lock).__name__}; pass the Lock that lock() or"
            " get_lock() returned"
        )
