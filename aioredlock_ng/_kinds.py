"""Make locks, semaphores, elections and guards: the methods of `Redlock` that describe them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from aioredlock_ng._electing import candidate
from aioredlock_ng._operations import Operations
from aioredlock_ng.errors import ConfigurationError
from aioredlock_ng.guarded import Guard, LockOptions, guarded
from aioredlock_ng.lock import Lock, OnLost
from aioredlock_ng.options import positive_seconds
from aioredlock_ng.semaphore import Semaphore

if TYPE_CHECKING:
    from typing import Unpack

    from aioredlock_ng._specs import SpecOptions
    from aioredlock_ng.election import Election, ElectionOptions

__all__ = ["Kinds"]


class Kinds(Operations):
    """The methods of a manager that describe what may be acquired. None of them does I/O."""

    def lock(
        self,
        name: str | bytes,
        *more: str | bytes,
        ttl: float | None = None,
        blocking_timeout: float | None = None,
        auto_extend: bool = True,
        max_hold: float | None = None,
        on_lost: OnLost = "cancel",
        owner: str | None = None,
        fail_fast: bool = False,
        fair: bool = False,
        min_hold: float | None = None,
    ) -> Lock:
        """Describe a lock. No I/O happens, and the manager need not be open.

        Args:
            name: The resource, 1 to 65,536 bytes.
            more: Further resources to lock together, all or nothing. At most 1,000 in all.
            ttl: Seconds until the lock expires without renewal, at most `max_ttl`. None: the
                manager's ttl.
            blocking_timeout: Seconds that `acquire` waits at most. None: for ever. 0: one attempt,
                and a second one if simultaneous rivals split the votes (`Lock.try_acquire`).
            auto_extend: Renew the lease in the background until its release.
            max_hold: Seconds after which the lease is lost although it could be renewed. None:
                never.
            on_lost: "cancel": a loss cancels the task inside `async with` as `asyncio.timeout`
                does, also within `anyio.CancelScope(shield=True)`. "flag": the task notices the
                loss at the end, or by `lease.lost`, `lease.check()` and `lease.wait_lost()`.
            owner: Label of the leases, for example the id of a request or a job: one printable line
                of at most 200 bytes. None: the manager's label. A manager with `owner=False` writes
                no label.
            fail_fast: Make only one attempt, without waiting for `blocking_timeout`, while no
                quorum of nodes can grant. Has no effect on waiting for other holders.
            fair: Serve the waiting tasks of all processes strictly in the order of their arrival.
                Without it, processes are served in order, and each serves several of its own tasks
                in a row, which is faster.
            min_hold: Seconds after the grant for which the lock stays taken at least, even if it is
                released earlier or its process dies. At most `max_ttl` and `max_hold`.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        blocking_timeout = _checked(blocking_timeout, on_lost)
        usual = ttl is None and max_hold is None and owner is None and min_hold is None
        usual = usual and auto_extend is True and fail_fast is False and fair is False
        if not usual or more or type(name) is not str:
            names = (name, *more)
            spec = self._specs.spec(
                names, ttl, auto_extend, max_hold, min_hold, owner, fail_fast=fail_fast, fair=fair
            )
        else:
            spec = self._specs.usual.get(name) or self._specs.usual_spec(name)
        return Lock(self, spec, blocking_timeout, on_lost)

    def semaphore(self, name: str | bytes, limit: int, **options: Unpack[LockOptions]) -> Semaphore:
        """Describe a semaphore, which at most `limit` holders have at a time. No I/O happens.

        Processes may use different limits. There are never more holders than the greatest limit in
        use. A lower limit takes effect as holders of higher slots release them.

        Args:
            name: The resource, as for `lock`.
            limit: The number of slots, 1 to 1,000.
            options: The options of `lock`, with the same meaning.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        on_lost = options.pop("on_lost", "cancel")
        blocking_timeout = _checked(options.pop("blocking_timeout", None), on_lost)
        spec = self._specs.semaphore(name, limit, cast("SpecOptions", options))
        return Semaphore(self, spec, blocking_timeout, on_lost)

    def election(self, name: str | bytes, **options: Unpack[ElectionOptions]) -> Election:
        """Describe a candidate of the election `name`. No I/O happens.

        Args:
            name: The election, which is the lock of this name: 1 to 65,536 bytes.
            options: See `aioredlock_ng.election.ElectionOptions`.

        Raises:
            ConfigurationError: An argument is invalid, or this manager writes no labels.
        """
        return candidate(self, self._options, self._specs.keys.key(name), name, **options)

    def guard(
        self, template: str, *, limit: int | None = None, **options: Unpack[LockOptions]
    ) -> Guard:
        """Return a decorator that runs each call inside `async with redlock.lock(name)`.

        docs/workers.md has examples. A call raises the errors of `async with redlock.lock(…)`.
        After `LockLost` the function was cancelled, or it finished and its result is discarded.

        Args:
            template: The name, with parameters of the function, their attributes and formats:
                "report:{user.id}:{day:%F}".
            limit: Number of calls that may run at a time under one name: `semaphore` in place of
                `lock`. None: a lock.
            options: Options of `lock`.

        Raises:
            ConfigurationError: At decoration: no coroutine function, an unknown placeholder or an
                invalid option. At the call: a value without a stable text, or with the separator.

        Safety: as in `Lock`.
        """
        if limit is None:
            return guarded(partial(self.lock, **options), template)
        return guarded(partial(self.semaphore, limit=limit, **options), template)


def _checked(blocking_timeout: float | None, on_lost: OnLost) -> float | None:
    """Check the two arguments that `Lock` needs itself, and return the time limit."""
    if on_lost not in ("cancel", "flag"):
        raise ConfigurationError(f"on_lost must be 'cancel' or 'flag', got {on_lost!r}")
    if blocking_timeout is None:
        return None
    return positive_seconds("blocking_timeout", blocking_timeout, zero=True)
