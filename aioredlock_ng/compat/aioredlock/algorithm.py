"""Provide aioredlock's lock manager on top of a `Redlock`."""

from __future__ import annotations

import asyncio
import math
import random
import warnings
from typing import TYPE_CHECKING, Any

from aioredlock_ng import LockLost, LockReleased, QuorumUnreachable, Redlock
from aioredlock_ng.compat.aioredlock._access import Access, name_of, token_of
from aioredlock_ng.compat.aioredlock._connections import nodes_of, without_passwords
from aioredlock_ng.compat.aioredlock._numbers import count_of, seconds_of
from aioredlock_ng.compat.aioredlock._own_locks import OwnLocks
from aioredlock_ng.compat.aioredlock._words import in_words_of_aioredlock, naming
from aioredlock_ng.compat.aioredlock.errors import LockAcquiringError, LockRuntimeError
from aioredlock_ng.compat.aioredlock.lock import Lock, check_lock
from aioredlock_ng.options import LONGEST_WITHOUT_GUARD, positive_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Aioredlock"]


class Aioredlock:
    """A lock manager over N independent nodes, with the methods of aioredlock's manager.

    The manager connects at its first use. As with aioredlock, a lock is one key on each node. While
    processes wait for the lock, each node also has a key with their queue.

    Args:
        redis_connections: dicts (`host`, `port`, `db`, `password`, `ssl`), (host, port) tuples,
            `redis://` and `rediss://` URLs, paths of Unix sockets, `redis.asyncio.Redis` clients,
            or `Sentinel` objects. Each connection must lead to a separate server.
        retry_count: Largest number of tries of `extend()`, 1 or more. `lock()` does not poll. It
            waits for a notification, for at most `retry_count - 1` times the average delay.
        retry_delay_min: Shortest delay in seconds between two tries.
        retry_delay_max: Longest delay in seconds between two tries.
        internal_lock_timeout: Seconds until a lock expires without renewal.
        options: Options of `Redlock`, for a gradual migration. Examples are `fencing=True`,
            `node_timeout`, and `recovery_guard="auto"` with `max_ttl`.

    Raises:
        ValueError: An argument is invalid. The message names the argument and the remedy.
        TypeError: A count or a time is not a number.
    """

    def __init__(
        self,
        redis_connections: Sequence[Any] = ({"host": "localhost", "port": 6379},),
        retry_count: int = 3,
        retry_delay_min: float = 0.1,
        retry_delay_max: float = 0.3,
        internal_lock_timeout: float = 10.0,
        **options: Any,
    ) -> None:
        warnings.warn(
            "aioredlock_ng.compat.aioredlock is a bridge for a migration; use"
            " aioredlock_ng.Redlock instead: `async with redlock.lock(name)` also cancels the"
            " body when the lock is lost (docs/migrating.md)",
            DeprecationWarning,
            stacklevel=2,
        )
        self.redis_connections = redis_connections
        self.retry_count = count_of("retry_count", retry_count)
        self.retry_delay_min = seconds_of("retry_delay_min", retry_delay_min)
        self.retry_delay_max = seconds_of("retry_delay_max", retry_delay_max)
        self.internal_lock_timeout = seconds_of("internal_lock_timeout", internal_lock_timeout)
        settings: dict[str, Any] = {"fencing": False, "recovery_guard": None} | options
        settings.setdefault(
            "max_ttl", LONGEST_WITHOUT_GUARD if settings["recovery_guard"] is None else 60.0
        )
        nodes = nodes_of(redis_connections)
        with naming(nodes="redis_connections", ttl="internal_lock_timeout"):
            redlock = Redlock(nodes, ttl=self.internal_lock_timeout, **settings)
        self._access = Access(redlock)
        self._locks = OwnLocks()

    async def lock(
        self,
        resource: str | bytes | float,
        lock_timeout: float | None = None,
        lock_identifier: str | None = None,
    ) -> Lock:
        """Acquire a lock.

        Args:
            resource: The name of the lock, which is also the key on the nodes. A number is
                converted to text.
            lock_timeout: Seconds until the lock expires. None: `internal_lock_timeout`, with
                renewal until the release.
            lock_identifier: Value of `lock.id`, which `get_lock` and `unlock` of this manager
                accept. If this manager holds the lock with the same identifier, the call renews and
                returns that lock. If that lock has a `lock_timeout`, this call needs one too. Other
                managers cannot use the identifier, because the nodes store a random token.

        Raises:
            LockAcquiringError: Some nodes hold another identifier, and the other nodes that
                answered make no majority.
            LockRuntimeError: No majority of the nodes answered, or the manager is destroyed.
            ValueError: An argument is invalid.

        Safety: as `aioredlock_ng.Lock.acquire`: the call returns a lock, or undoes the attempt and
        raises.
        """
        if lock_timeout is not None:
            positive_seconds("lock_timeout", lock_timeout)
        held = self._locks.get(resource)
        if lock_identifier and held is not None and held.id == lock_identifier and held.valid:
            if lock_timeout is None and held.lock_timeout is not None:
                raise ValueError(
                    f"the lock {resource!r} was acquired with"
                    f" lock_timeout={held.lock_timeout:g} and is not renewed; pass a"
                    " lock_timeout again"
                )
            await self.extend(held, lock_timeout)
            return Lock(self, resource, lock_identifier, lock_timeout).leased(held.lease)
        redlock = await self._access.redlock()
        delay = (self.retry_delay_min + self.retry_delay_max) / 2
        with in_words_of_aioredlock():
            lease = await redlock.lock(
                name_of(resource),
                ttl=lock_timeout or self.internal_lock_timeout,
                blocking_timeout=(self.retry_count - 1) * delay,
                auto_extend=lock_timeout is None,
                on_lost="flag",
            ).acquire()
        lock = Lock(self, resource, lock_identifier or lease.token, lock_timeout).leased(lease)
        self._locks.remember(lock)
        return lock

    async def extend(self, lock: Lock, lock_timeout: float | None = None) -> None:
        """Renew a lock, with its own ttl or another ttl.

        If another manager acquired the lock, the call extends the keys that hold the lock's
        identifier. Their remaining time is never shortened, because the holder relies on it.

        Args:
            lock: A lock returned by `lock` or `get_lock`, or a lock made by hand with `valid=True`.
            lock_timeout: New ttl in seconds, also for later renewals. None: the lock's own ttl.

        Raises:
            RuntimeError: The lock is no longer valid.
            LockAcquiringError: The lock is lost: no majority of the nodes holds its identifier.
            LockRuntimeError: No majority confirmed the renewal in `retry_count` tries. The lock
                stays valid until its deadline.
            ValueError: The timeout is invalid.
            TypeError: The argument is not a lock.

        Safety: as `aioredlock_ng.Lease.extend`.
        """
        check_lock("extend", lock)
        if not lock.valid:
            hint = "" if lock.lease is not None else ", or pass valid=True to a Lock made by hand"
            raise RuntimeError(f"the lock {lock.resource!r} is not valid; acquire it again{hint}")
        if lock_timeout is not None:
            positive_seconds("lock_timeout", lock_timeout)
        ttl = lock_timeout or lock.lock_timeout or self.internal_lock_timeout
        lease = self._locks.lease_of(lock)
        with in_words_of_aioredlock():
            for tries_left in reversed(range(self.retry_count)):
                try:
                    if lease is not None:
                        await lease.extend(ttl)
                    else:
                        lock.prolonged(await self._access.prolong(lock.resource, lock.id, ttl))
                    break
                except QuorumUnreachable:
                    if not tries_left or not lock.valid:
                        raise
                except LockReleased:
                    raise RuntimeError(
                        f"the lock {lock.resource!r} was released meanwhile"
                    ) from None
                except LockLost:
                    lock.ending_in(0.0)
                    raise
                delay = random.uniform(self.retry_delay_min, self.retry_delay_max)  # noqa: S311
                await asyncio.sleep(delay)

    async def unlock(self, lock: Lock) -> None:
        """Release a lock. The lock is invalid afterwards, even if the call fails.

        If another manager acquired the lock, the call deletes the keys that hold the lock's
        identifier. The holder then loses the lock. If no node has the lock, no error is raised.

        Args:
            lock: A lock returned by `lock` or `get_lock`, or a lock made by hand from a name and an
                identifier.

        Raises:
            LockAcquiringError: At least half of the nodes hold another identifier.
            LockRuntimeError: The lock was already lost or belongs to another manager, and no
                majority of the nodes answered.
            TypeError: The argument is not a lock.

        Safety: as `aioredlock_ng.Lease.release`, and for another manager's lock as
        `aioredlock_ng.Redlock.force_release`. A node that does not answer is no error: the release
        of this manager's lock is sent to this node later.
        """
        check_lock("unlock", lock)
        lease = self._locks.lease_of(lock.ending_in(0.0))
        if lease is not None:
            own = self._locks.get(lock.resource)
            # `own` may be a later lock with the same identifier. That lock stays.
            if own is not None and own.lease == lease:
                self._locks.forget(lock.resource)
            with in_words_of_aioredlock():
                if await lease.release():
                    return
        if self._access.destroyed or (
            lease is None and await self._access.release(lock.resource, lock.id)
        ):
            return
        token = token_of(lock.id) if lease is None else lease.token
        info = await self._access.inspect(lock.resource)
        others = sum(answer.token not in (None, token) for answer in info.answers)
        if 2 * (info.total - others) <= info.total:
            if lease is not None:
                raise LockAcquiringError(
                    f"the lock {lock.resource!r} was lost, another client holds it now"
                )
            raise LockAcquiringError(
                f"the keys of the lock {lock.resource!r} hold another identifier; only the manager"
                " that acquired a lock knows the lock_identifier that was given to lock()"
            )

    async def is_locked(self, resource_or_lock: str | Lock) -> bool:
        """Return True if a majority of the nodes has the key, even if other clients have set it.

        The result is False if no majority answers.

        Raises:
            TypeError: The argument is neither a name nor a lock.

        Safety: a cancelled call changes nothing.
        """
        if not isinstance(resource_or_lock, (str, Lock)):
            raise TypeError(
                "is_locked() takes the name of a resource or a Lock, not"
                f" {type(resource_or_lock).__name__}"
            )
        resource = (
            resource_or_lock.resource if isinstance(resource_or_lock, Lock) else resource_or_lock
        )
        try:
            info = await self._access.inspect(resource)
        except LockRuntimeError:
            return False
        return 2 * sum(answer.token is not None for answer in info.answers) > info.total

    async def get_lock(self, resource: str, lock_identifier: str) -> Lock:
        """Return the lock that is held with this identifier.

        Another manager's lock is valid for the remaining time that the nodes reported.

        Raises:
            LockAcquiringError: The lock is not held, or is held with another identifier.
            LockRuntimeError: No majority of the nodes answered.

        Safety: a cancelled call changes nothing.
        """
        lock = Lock(self, resource, lock_identifier)
        lease = self._locks.lease_of(lock)
        token = token_of(lock_identifier) if lease is None else lease.token
        info = await self._access.inspect(resource)
        if not info.held or info.token != token:
            raise LockAcquiringError(f"the lock {resource!r} is not held by this identifier")
        lock.lock_timeout = round(info.remaining) if math.isfinite(info.remaining) else None
        return lock.ending_in(info.remaining)

    async def get_active_locks(self) -> list[Lock]:
        """Return the valid locks of this manager whose keys exist on a majority of the nodes.

        Safety: a cancelled call changes nothing.
        """
        own = list(self._locks.values())
        return [lock for lock in own if lock.valid and await lock.is_locked()]

    async def destroy(self) -> None:
        """Release all locks and disconnect for good. Idempotent.

        Raises:
            LockRuntimeError: The call comes from another event loop or a forked process.

        Safety: as `aioredlock_ng.Redlock.aclose`.
        """
        await self._access.destroy()
        self._locks.clear()

    def __repr__(self) -> str:
        """Show the settings without passwords."""
        return (
            f"Aioredlock(redis_connections={without_passwords(self.redis_connections)},"
            f" retry_count={self.retry_count}, retry_delay_min={self.retry_delay_min},"
            f" retry_delay_max={self.retry_delay_max},"
            f" internal_lock_timeout={self.internal_lock_timeout})"
        )
