"""Keep the locks that an `Aioredlock` acquired itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.compat.aioredlock._access import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioredlock_ng import Lease
    from aioredlock_ng.compat.aioredlock.lock import Lock

__all__ = ["OwnLocks"]

_FORGET_FROM: Final = 64
"""Number of locks at which invalid locks are removed for the first time."""


class OwnLocks:
    """The locks of one manager by their keys."""

    def __init__(self) -> None:
        self._by_key: dict[Any, Lock] = {}
        self._forget_at = _FORGET_FROM

    def __len__(self) -> int:
        """Return the number of kept locks."""
        return len(self._by_key)

    def values(self) -> Iterable[Lock]:
        """Return the kept locks."""
        return self._by_key.values()

    def get(self, resource: Any) -> Lock | None:
        """Return the lock of this name; None if this manager did not acquire it."""
        return self._by_key.get(_key_of(resource))

    def forget(self, resource: Any) -> None:
        """Remove the lock of this name."""
        del self._by_key[_key_of(resource)]

    def clear(self) -> None:
        """Remove all locks."""
        self._by_key.clear()

    def lease_of(self, lock: Lock) -> Lease | None:
        """Return the lease of a lock; None if another manager acquired the lock.

        If this manager acquired the lock, and `lock` was made by hand, bind the lease to `lock`.
        """
        own = self.get(lock.resource)
        if (
            lock.lease is None
            and own is not None
            and own.lease is not None
            and lock.id in (own.id, own.lease.token)
        ):
            lock.leased(own.lease)
        return lock.lease

    def remember(self, lock: Lock) -> None:
        """Keep a lock that this manager acquired, and forget locks that are no longer valid."""
        # A lock with a timeout may never be released by its user.
        if len(self._by_key) >= self._forget_at:
            self._by_key = {name: one for name, one in self._by_key.items() if one.valid}
            self._forget_at = max(_FORGET_FROM, 2 * len(self._by_key))
        self._by_key[_key_of(lock.resource)] = lock


def _key_of(resource: Any) -> Any:
    """Return the same key for all forms of a name: 42, "42" and b"42" are one key on the nodes."""
    name = name_of(resource)
    return name.encode("utf-8", "surrogatepass") if isinstance(name, str) else name
