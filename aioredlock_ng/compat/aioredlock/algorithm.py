"""aioredlock's lock manager over a `Redlock`; it has no connection of its own."""

from __future__ import annotations

import asyncio
import math
import random
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from aioredlock_ng import ConfigurationError, LockLost, LockReleased, QuorumUnreachable, Redlock
from aioredlock_ng.compat.aioredlock._access import Access, name_of
from aioredlock_ng.compat.aioredlock._connections import nodes_of, sentinels_of, without_passwords
from aioredlock_ng.compat.aioredlock._words import in_words_of_aioredlock, naming
from aioredlock_ng.compat.aioredlock.errors import LockAcquiringError, LockRuntimeError
from aioredlock_ng.compat.aioredlock.lock import Lock
from aioredlock_ng.options import positive_seconds, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng import Lease

__all__ = ["Aioredlock"]

_Number = TypeVar("_Number", int, float)

_ANY_TTL = 1e9
"""aioredlock knows no longest timeout, and without the recovery guard no node has to wait for it."""

_FORGET_FROM = 64


class Aioredlock:
    """Locks over N independent nodes, by aioredlock's names; it connects when it is first used.

    On the nodes there is nothing but the lock's key, as with aioredlock.

    Args:
        redis_connections: dicts (`host`, `port`, `db`, `password`, `ssl`), (host, port) tuples, `redis://` and
            `rediss://` URLs, paths of Unix sockets, `Sentinel` objects. Each a server of its own.
        retry_count: How often it is tried at most, 1 or more. Tries are not spaced out any more: `lock()` is woken when
            the lock is free, and gives up after the time that so many tries would have taken on average.
        retry_delay_min: Seconds between two tries at least.
        retry_delay_max: Seconds between two tries at most.
        internal_lock_timeout: Life of a lock without renewal, seconds.
        options: Options of `Redlock`, to take over more of it step by step: `fencing=True`, `recovery_guard="auto"`
            with `max_ttl`, `node_timeout`.

    Raises:
        ValueError: An argument is unusable; says which, and what to do.
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
            "aioredlock_ng.compat.aioredlock is for moving over; use aioredlock_ng.Redlock in its place:"
            " `async with redlock.lock(name)` also cancels the body when the lock is lost (docs/migrating.md)",
            DeprecationWarning,
            stacklevel=2,
        )
        self.redis_connections = redis_connections
        self.retry_count = whole_number("retry_count", _number(int, "retry_count", retry_count), 1)
        self.retry_delay_min = _seconds("retry_delay_min", retry_delay_min)
        self.retry_delay_max = _seconds("retry_delay_max", retry_delay_max)
        self.internal_lock_timeout = _seconds("internal_lock_timeout", internal_lock_timeout)
        settings: dict[str, Any] = {"fencing": False, "recovery_guard": None} | options
        settings.setdefault("max_ttl", _ANY_TTL if settings["recovery_guard"] is None else 60.0)
        nodes = nodes_of(redis_connections)
        with naming(nodes="redis_connections", ttl="internal_lock_timeout"):
            redlock = Redlock(nodes, ttl=self.internal_lock_timeout, **settings)
        self._access = Access(redlock, sentinels_of(redis_connections, nodes))
        self._locks: dict[Any, Lock] = {}
        self._forget_at = _FORGET_FROM

    async def lock(
        self,
        resource: str | bytes | float,
        lock_timeout: float | None = None,
        lock_identifier: str | None = None,
    ) -> Lock:
        """Acquire a lock.

        Args:
            resource: Its name, or a number, which is its key on the nodes.
            lock_timeout: Seconds that it lives; None: `internal_lock_timeout`, renewed until it is released.
            lock_identifier: Value of `lock.id`. By it this manager finds the lock in `get_lock`, `extend` and `unlock`, and
                asks for it again. No other manager does: the nodes hold a token that is fresh for every attempt. A lock
                that had a `lock_timeout` is asked for again with one.

        Raises:
            LockAcquiringError: Nodes hold another identifier, and no majority is left. Nodes that did not answer count
                against a majority, too.
            LockRuntimeError: No majority of the nodes answered, or the manager is destroyed.
            ValueError: An argument is unusable.

        Safety: as `aioredlock_ng.Lock.acquire`: returns a lock, or raises and has undone the attempt.
        """
        if lock_timeout is not None:
            positive_seconds("lock_timeout", lock_timeout)
        held = self._locks.get(_key_of(resource))
        if lock_identifier and held is not None and held.id == lock_identifier and held.valid:
            if lock_timeout is None and held.lock_timeout is not None:
                raise ValueError(
                    f"the lock {resource!r} was acquired with lock_timeout={held.lock_timeout:g} and is not renewed by itself;"
                    " ask for it again with a lock_timeout"
                )
            await self.extend(held, lock_timeout)
            return Lock(self, resource, lock_identifier, lock_timeout).leased(held.lease)
        redlock = await self._access.redlock()
        with in_words_of_aioredlock():
            lease = await redlock.lock(
                name_of(resource),
                ttl=lock_timeout or self.internal_lock_timeout,
                blocking_timeout=(self.retry_count - 1)
                * (self.retry_delay_min + self.retry_delay_max)
                / 2,
                auto_extend=lock_timeout is None,
                on_lost="flag",
            ).acquire()
        lock = Lock(self, resource, lock_identifier or lease.token, lock_timeout).leased(lease)
        self._remember(lock)
        return lock

    async def extend(self, lock: Lock, lock_timeout: float | None = None) -> None:
        """Give a lock its whole life again, or another one.

        A lock of another manager is extended by its identifier, and its life on the nodes is never shortened: its holder
        counts on it.

        Args:
            lock: One that `lock` or `get_lock` returned, or one made by hand with `valid=True`.
            lock_timeout: Seconds from now, kept by later renewals; None: the lock's own.

        Raises:
            RuntimeError: It is not valid any more.
            LockAcquiringError: It is lost: no majority of the nodes holds its identifier.
            LockRuntimeError: No majority confirmed it in `retry_count` tries; the lock goes on until its end.
            ValueError: The timeout is unusable.

        Safety: as `aioredlock_ng.Lease.extend`.
        """
        if not lock.valid:
            hint = (
                ""
                if lock.lease is not None
                else ", or pass valid=True to a Lock that is made by hand"
            )
            raise RuntimeError(f"the lock {lock.resource!r} is not valid; acquire it anew{hint}")
        if lock_timeout is not None:
            positive_seconds("lock_timeout", lock_timeout)
        ttl = lock_timeout or lock.lock_timeout or self.internal_lock_timeout
        lease = self._lease_of(lock)
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
                await asyncio.sleep(random.uniform(self.retry_delay_min, self.retry_delay_max))  # noqa: S311

    async def unlock(self, lock: Lock) -> None:
        """Release a lock; it is not valid any more, whatever comes of this.

        A lock of another manager is released by its identifier, and its holder loses it at once. No error if no node holds
        the lock.

        Args:
            lock: One that `lock` or `get_lock` returned, or one made by hand from a name and an identifier.

        Raises:
            LockAcquiringError: A majority of the nodes holds another identifier.
            LockRuntimeError: It was lost before, or is another manager's, and no majority of the nodes answered.

        Safety: as `aioredlock_ng.Lease.release`, of another manager's as `aioredlock_ng.Redlock.force_release`. Nodes that do
        not answer to the release of a lock of this manager execute it later; that is no error here.
        """
        lease = self._lease_of(lock.ending_in(0.0))
        if lease is not None:
            own = self._locks.get(_key_of(lock.resource))
            # A later lock may have the same identifier.
            if own is not None and own.lease == lease:
                del self._locks[_key_of(lock.resource)]
            with in_words_of_aioredlock():
                if await lease.release():
                    return
        if self._access.destroyed or (
            lease is None and await self._access.release(lock.resource, lock.id)
        ):
            return
        token = lock.id if lease is None else lease.token
        info = await self._access.inspect(lock.resource)
        others = sum(answer.token not in (None, token) for answer in info.answers)
        if 2 * (info.total - others) <= info.total:
            if lease is not None:
                raise LockAcquiringError(f"the lock {lock.resource!r} was lost, another has it now")
            raise LockAcquiringError(
                f"the keys of the lock {lock.resource!r} hold another identifier; one that was given to lock() as"
                " lock_identifier is known to the manager that acquired the lock, and to no other"
            )

    async def is_locked(self, resource_or_lock: str | Lock) -> bool:
        """True when a majority of the nodes has the key, whoever set it; False as well when no majority answers.

        Raises:
            TypeError: Neither a name nor a lock.

        Safety: cancelled, nothing has changed.
        """
        if not isinstance(resource_or_lock, (str, Lock)):
            raise TypeError(
                f"is_locked() takes the name of a resource or a Lock, not {type(resource_or_lock).__name__}"
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
        """The lock that is held by this identifier.

        `valid` of another manager's lock counts down the life that the nodes said it had left.

        Raises:
            LockAcquiringError: It is not held, or by another identifier.
            LockRuntimeError: No majority of the nodes could be asked.

        Safety: cancelled, nothing has changed.
        """
        lock = Lock(self, resource, lock_identifier)
        lease = self._lease_of(lock)
        info = await self._access.inspect(resource)
        if not info.held or info.token != (lock_identifier if lease is None else lease.token):
            raise LockAcquiringError(f"the lock {resource!r} is not held by this identifier")
        lock.lock_timeout = round(info.remaining) if math.isfinite(info.remaining) else None
        return lock.ending_in(info.remaining)

    async def get_active_locks(self) -> list[Lock]:
        """The locks of this manager that are valid and that the nodes have.

        Safety: cancelled, nothing has changed.
        """
        return [
            lock for lock in list(self._locks.values()) if lock.valid and await lock.is_locked()
        ]

    async def destroy(self) -> None:
        """Release all locks and disconnect, for good. Idempotent.

        Raises:
            LockRuntimeError: Called from another event loop or a forked process.

        Safety: as `aioredlock_ng.Redlock.aclose`.
        """
        await self._access.destroy()
        self._locks.clear()

    def __repr__(self) -> str:
        """Settings, without passwords."""
        return (
            f"Aioredlock(redis_connections={without_passwords(self.redis_connections)}, retry_count={self.retry_count},"
            f" retry_delay_min={self.retry_delay_min}, retry_delay_max={self.retry_delay_max},"
            f" internal_lock_timeout={self.internal_lock_timeout})"
        )

    def _lease_of(self, lock: Lock) -> Lease | None:
        """Return the lease of a lock of this manager, and bind a lock that was made by hand to it."""
        own = self._locks.get(_key_of(lock.resource))
        if (
            lock.lease is None
            and own is not None
            and own.lease is not None
            and lock.id in (own.id, own.lease.token)
        ):
            lock.leased(own.lease)
        return lock.lease

    def _remember(self, lock: Lock) -> None:
        # Locks with a timeout need not be released by anybody.
        if len(self._locks) >= self._forget_at:
            self._locks = {name: one for name, one in self._locks.items() if one.valid}
            self._forget_at = max(_FORGET_FROM, 2 * len(self._locks))
        self._locks[_key_of(lock.resource)] = lock


def _key_of(resource: Any) -> Any:
    """Return the same for all ways to write a name: 42, "42" and b"42" are one key on the nodes."""
    name = name_of(resource)
    return name.encode("utf-8", "surrogatepass") if isinstance(name, str) else name


def _seconds(name: str, value: object) -> float:
    return positive_seconds(name, _number(float, name, value))


def _number(kind: Callable[[Any], _Number], name: str, value: object) -> _Number:
    """As aioredlock takes it, which raises these kinds of errors: a text that is a number is one."""
    try:
        return kind(value)
    except TypeError:
        raise TypeError(f"{name} must be a number, not {type(value).__name__}") from None
    except (ValueError, OverflowError):
        raise ConfigurationError(f"{name} must be a number, not {value!r}") from None
