"""Define the methods of `Redlock` that make decorators, candidates and all kinds of locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.request_labels import label_template
from aioredlock_ng._manager.once import wait_of
from aioredlock_ng.errors import ConfigurationError
from aioredlock_ng.guarded import described
from aioredlock_ng.sync._election import Election
from aioredlock_ng.sync._lock import Lock
from aioredlock_ng.sync._once import once
from aioredlock_ng.sync._rwlock import RWLock
from aioredlock_ng.sync._semaphore import Semaphore
from aioredlock_ng.sync.guarded import guarded

if TYPE_CHECKING:
    from typing import Unpack

    import aioredlock_ng
    from aioredlock_ng._threaded.opened import Opened
    from aioredlock_ng._threaded.process import PerProcess
    from aioredlock_ng.sync._lease import Entry, Inside
    from aioredlock_ng.sync._lock import OnLost
    from aioredlock_ng.sync._once import Once
    from aioredlock_ng.sync._options import (
        ElectionOptions,
        GuardOptions,
        LockOptions,
        RWLockOptions,
    )
    from aioredlock_ng.sync.guarded import Guard

__all__ = ["Kinds"]


class Kinds:
    """The methods of a manager that make locks, candidates and decorators. Only `opened` does I/O.

    The subclass `Redlock` sets the attributes.
    """

    _unopened: aioredlock_ng.Redlock
    _process: PerProcess[aioredlock_ng.Redlock]
    _inside: Inside

    def lock(self, name: str | bytes, *more: str | bytes, **options: Unpack[LockOptions]) -> Lock:
        """Describe a lock. No I/O happens, and the manager need not be open.

        Args:
            name: The resource, 1 to 65,536 bytes.
            more: Further resources. The lock acquires all resources or none.
            options: As for `aioredlock_ng.Redlock.lock`, except for `on_lost`. Here `on_lost` is a
                function that takes the lost lease. The function is called once per lost lease, in a
                thread made for the call.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        return Lock(self, (name, *more), *_split(options))

    def semaphore(self, name: str | bytes, limit: int, **options: Unpack[LockOptions]) -> Semaphore:
        """Describe a semaphore, which at most `limit` clients hold at a time. No I/O happens.

        Args:
            name: The resource, as for `lock`.
            limit: The number of slots, 1 to 1,000; see `aioredlock_ng.Redlock.semaphore`.
            options: As for `lock`.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        return Semaphore(self, name, limit, *_split(options))

    def rwlock(self, name: str | bytes, **options: Unpack[RWLockOptions]) -> RWLock:
        """Describe a read-write lock: several readers, or one writer. No I/O happens.

        Args:
            name: The resource, as for `lock`. `lock(name)` is a writer too.
            options: As for `lock`, without `fair` and `min_hold`.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        return RWLock(self, name, *_split(options))

    def election(self, name: str | bytes, **options: Unpack[ElectionOptions]) -> Election:
        """Describe a candidate of the election `name`. No I/O happens.

        Args:
            name: The name of the election and of its lock, 1 to 65,536 bytes.
            options: See `aioredlock_ng.sync.ElectionOptions`.

        Raises:
            ConfigurationError: An argument is invalid. Or this manager writes no labels, for
                example because of `owner=False`.
        """
        return Election(self, name, *_split(options))

    def guard(
        self,
        template: str,
        *,
        limit: int | None = None,
        shared: bool = False,
        **options: Unpack[GuardOptions],
    ) -> Guard:
        """Decorate a plain function: each call runs inside `with redlock.lock(name)`.

        A call raises the errors of `with redlock.lock(…)`. After `LockNotAcquired` the function has
        not begun. After `LockLost` the function has finished, and its result is discarded.

        Args:
            template: The lock's name, with placeholders for parameters, their attributes and
                formats: "report:{user.id}:{day:%F}".
            limit: Number of calls that may run at a time under one name, by a `semaphore` of this
                limit. None: one call at a time, by a `lock`.
            shared: If True, the lock is `rwlock(name).read()`. Calls with the same lock name
                may then run at the same time. A call of a guard without `shared` is a writer.
            options: As for `lock`. With `shared`, the options of `rwlock`. `owner` may have the
                placeholders of the name, or be a function; see `GuardOptions`.

        Raises:
            ConfigurationError: Raised at decoration if the function is not a plain function, or if
                an argument is invalid. `limit` and `shared` exclude each other. Raised at a call if
                the value for a placeholder has no text that is the same in every process, or
                contains the separator that follows the placeholder. Raised also if the text for
                `owner` is not one printable line of at most 200 bytes, or if the result is a
                coroutine or a generator, which would run after the release. An error of the
                function `owner` propagates.
        """
        owner = label_template(options.pop("owner", None))
        return guarded(
            lambda name, label: described(
                self, (name,), options, limit, shared=shared, owner=label
            ),
            template,
            owner,
        )

    def once(self, template: str, *, within: float) -> Once:
        """Decorate a function so that it starts at most once per `within` seconds.

        The limit holds for all processes together. A call returns True if it ran the function. The
        function's own result is discarded. The call returns False if another call with the same
        name runs the function, or began the function less than `within` seconds ago. A run
        counts even if it fails or its process dies. See `aioredlock_ng.Redlock.once`.

        A call raises `QuorumUnreachable` if no quorum could decide, and `UpgradeRefused` if its
        caller holds `rwlock(name).read()` of the same name. In both cases the function has not
        begun. After `LockLost` the function has finished, and another call may run the function
        again.

        Args:
            template: The name, as for `guard`.
            within: Shortest time in seconds between the starts of two runs. At most `max_ttl`.

        Raises:
            ConfigurationError: Raised in the cases of `guard`, and if `within` is invalid.
        """
        self._unopened.once(template, within=within)
        return once(
            lambda name: self.lock(name, blocking_timeout=wait_of(within), min_hold=within),
            template,
        )

    def opened(self) -> Opened[aioredlock_ng.Redlock]:
        """Return the open manager with its thread. Open the manager if needed.

        Internal: for `Lock`.

        Raises:
            RedlockClosed: The manager is closed.
        """
        return self._process.open()

    @property
    def known(self) -> aioredlock_ng.Redlock:
        """The asyncio manager that is open in this process.

        Without an open manager, the value is an unopened manager, which only describes locks.

        Internal: for `Lock`.
        """
        here = self._process.here
        return self._unopened if here is None else here.redlock

    @property
    def inside(self) -> list[Entry]:
        """The `with` blocks that the current thread is in, oldest first.

        Internal: for `Lock`.
        """
        return self._inside.entries


def _split(
    options: ElectionOptions | LockOptions | RWLockOptions,
) -> tuple[dict[str, Any], OnLost | None]:
    """Return the options without `on_lost`, for the asyncio lock, and the callback `on_lost`."""
    on_lost = options.pop("on_lost", None)
    if on_lost is not None and not callable(on_lost):
        raise ConfigurationError(
            f"on_lost must be a function that takes the lease, or None, not {on_lost!r}"
        )
    return dict(options), on_lost
