"""Make locks, semaphores and guards: the methods of `Redlock` that describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioredlock_ng.errors import ConfigurationError
from aioredlock_ng.sync._lock import Lock
from aioredlock_ng.sync._semaphore import Semaphore
from aioredlock_ng.sync.guarded import guarded

if TYPE_CHECKING:
    from typing import Unpack

    import aioredlock_ng
    from aioredlock_ng._threaded.engine_thread import EngineThread
    from aioredlock_ng._threaded.process import PerProcess
    from aioredlock_ng.sync._lease import Entry, Inside
    from aioredlock_ng.sync._lock import OnLost
    from aioredlock_ng.sync._options import LockOptions
    from aioredlock_ng.sync.guarded import Guard

__all__ = ["Kinds"]


class Kinds:
    """The methods of a manager that describe what may be acquired. None of them does I/O.

    `Redlock` sets the attributes.
    """

    _unopened: aioredlock_ng.Redlock
    _process: PerProcess[aioredlock_ng.Redlock]
    _inside: Inside

    def lock(self, name: str | bytes, *more: str | bytes, **options: Unpack[LockOptions]) -> Lock:
        """Describe a lock. No I/O happens, and the manager need not be open.

        Args:
            name: The resource, 1 to 65,536 bytes.
            more: Further resources to acquire together: all or nothing.
            options: As for `aioredlock_ng.Redlock.lock`, except for `on_lost`. It is a function
                that takes the lost lease. It is called once per lost lease, on a thread of its own.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        return Lock(self, (name, *more), *_split(options))

    def semaphore(self, name: str | bytes, limit: int, **options: Unpack[LockOptions]) -> Semaphore:
        """Describe a semaphore, which at most `limit` holders have at a time. No I/O happens.

        Args:
            name: The resource, as for `lock`.
            limit: The number of slots, 1 to 1,000; see `aioredlock_ng.Redlock.semaphore`.
            options: As for `lock`.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        return Semaphore(self, name, limit, *_split(options))

    def guard(
        self, template: str, *, limit: int | None = None, **options: Unpack[LockOptions]
    ) -> Guard:
        """Decorate a plain function: each call runs inside `with redlock.lock(name)`.

        Args:
            template: The name, with parameters of the function, their attributes and formats:
                "report:{user.id}:{day:%F}".
            limit: Number of calls that may run at a time under one name: `semaphore` in place of
                `lock`. None: a lock.
            options: As for `lock`.

        Raises:
            ConfigurationError: At decoration: a coroutine function, an unknown placeholder or an
                invalid option. At the call: a value without a stable text, or with the separator.

        A call raises the errors of `with redlock.lock(…)`. After `LockNotAcquired` the function has
        not begun. After `LockLost` it has finished, and its result is discarded.
        """
        if limit is None:
            return guarded(lambda name: self.lock(name, **options), template)
        return guarded(lambda name: self.semaphore(name, limit, **options), template)

    def opened(self) -> EngineThread:
        """Return the thread of the locks' event loop. Open the manager at the first call.

        Internal: for `Lock`.

        Raises:
            RedlockClosed: Closed.
        """
        return self._process.open().thread

    @property
    def known(self) -> aioredlock_ng.Redlock:
        """The manager that is open in this process, or else the manager that is never opened.

        Internal: for `Lock`.
        """
        here = self._process.here
        return self._unopened if here is None else here.redlock

    @property
    def inside(self) -> list[Entry]:
        """The open `with` entries of the current thread, oldest first.

        Internal: for `Lock`.
        """
        return self._inside.entries


def _split(options: LockOptions) -> tuple[dict[str, Any], OnLost | None]:
    """Return the options of the asyncio lock, and the callback, which is checked here."""
    on_lost = options.pop("on_lost", None)
    if on_lost is not None and not callable(on_lost):
        raise ConfigurationError(
            f"on_lost must be a function that takes the lease, or None, not {on_lost!r}"
        )
    return dict(options), on_lost
