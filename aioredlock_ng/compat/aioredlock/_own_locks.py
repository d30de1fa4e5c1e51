"""Keep the locks that an `Aioredlock` has acquired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng._core.keys import name_bytes
from aioredlock_ng.compat.aioredlock._access import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioredlock_ng import Lease
    from aioredlock_ng.compat.aioredlock.lock import Lock

__all__ = ["OwnLocks"]

_FORGET_FROM: Final = 64
"""Number of kept locks at which `remember` removes invalid locks for the first time."""


class OwnLocks:
    """The locks that one manager has acquired, by name."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, Lock] = {}
        self._forget_at = _FORGET_FROM

    def __len__(self) -> int:
        return len(self._by_key)

    def values(self) -> Iterable[Lock]:
        return self._by_key.values()

    def get(self, resource: Any) -> Lock | None:
        return self._by_key.get(_key_of(resource))

    def forget(self, resource: Any) -> None:
        del self._by_key[_key_of(resource)]

    def clear(self) -> None:
        self._by_key.clear()

    def lease_of(self, lock: Lock) -> Lease | None:
        """Return the lease of a lock. Return None if another manager acquired the lock.

        A user may make the object `lock` by hand, with the name and the identifier of a lock that
        this manager has acquired. The call then sets `lock.lease` to the lease of that lock.
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
        # Some users let locks with a timeout expire, and do not release them. If no lock were
        # removed here, the dict would grow without limit.
        if len(self._by_key) >= self._forget_at:
            self._by_key = {name: one for name, one in self._by_key.items() if one.valid}
            self._forget_at = max(_FORGET_FROM, 2 * len(self._by_key))
        self._by_key[_key_of(lock.resource)] = lock


def _key_of(resource: Any) -> bytes:
    """Return the same key for all forms of a name: 42, "42" and b"42" are one key on the nodes.

    Raises:
        ConfigurationError: The resource cannot be a name.
    """
    return name_bytes("resource", name_of(resource))
