"""Define the methods of `Redlock` that make decorators, candidates and all kinds of locks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from aioredlock_ng._core.request_labels import label_template
from aioredlock_ng._election.candidate_arguments import candidate
from aioredlock_ng._manager.once import once, wait_of
from aioredlock_ng._manager.operator_methods import Operations
from aioredlock_ng.election import ElectionOptions
from aioredlock_ng.errors import ConfigurationError
from aioredlock_ng.guarded import Guard, GuardOptions, LockOptions, described, guarded
from aioredlock_ng.lock import Lock, OnLost
from aioredlock_ng.options import positive_seconds
from aioredlock_ng.rwlock import RWLock
from aioredlock_ng.semaphore import Semaphore

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Unpack

    from aioredlock_ng._manager.once import Once
    from aioredlock_ng._manager.specs import SpecOptions
    from aioredlock_ng.election import Election
    from aioredlock_ng.rwlock import RWLockOptions

__all__ = ["Kinds"]


class Kinds(Operations):
    """The methods of a manager that make locks, candidates and decorators, without I/O."""

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
            more: Further resources. The lock acquires all resources or none. At most 1,000 names in
                total.
            ttl: Seconds until the lock expires without renewal, at most `max_ttl`. None: the
                manager's ttl.
            blocking_timeout: Longest wait of `acquire` in seconds. None: for ever. 0: one attempt,
                and a second one if simultaneous attempts split the votes; see `Lock.try_acquire`.
            auto_extend: Renew the lease in the background until its release.
            max_hold: Seconds after which the lease is lost even if it could be renewed. None:
                never.
            on_lost: "cancel": a loss cancels the task inside `async with`, in the same way as
                `asyncio.timeout`, even inside `anyio.CancelScope(shield=True)`. "flag": the task
                notices the loss by `lease.lost`, `lease.check()` or `lease.wait_lost()`,
                or at the end of the `async with`.
            owner: Label of the leases, for example the id of a request or a job: one printable line
                of at most 200 bytes. None: the manager's label. A manager with `owner=False` writes
                no label.
            fail_fast: True: while no quorum of nodes can grant, fail after one attempt instead of
                waiting for `blocking_timeout`. The wait while another client holds the lock stays
                the same.
            fair: Serve the waiting tasks of all processes strictly in the order of their arrival.
                False: the processes are served in order of arrival. The process that gets the lock
                may serve several of its own tasks in a row, even before earlier tasks of other
                processes. This is faster.
            min_hold: Shortest time in seconds for which the lock stays taken after the grant, even
                if the lease is released earlier or the process dies. At most the smaller of
                `max_ttl` and `max_hold`.

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
        """Describe a semaphore, which at most `limit` clients hold at a time. No I/O happens.

        Processes may use different limits. There are never more holders than the greatest limit in
        use. If a limit is lowered, holders of slots above the new limit keep their slots until the
        release.

        Args:
            name: The resource, as for `lock`.
            limit: The number of slots, 1 to 1,000.
            options: The options of `lock`, with the same meaning.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        _check_names("semaphore", options, LockOptions.__optional_keys__)
        on_lost = options.pop("on_lost", "cancel")
        blocking_timeout = _checked(options.pop("blocking_timeout", None), on_lost)
        spec = self._specs.semaphore(name, limit, cast("SpecOptions", options))
        return Semaphore(self, spec, blocking_timeout, on_lost)

    def rwlock(self, name: str | bytes, **options: Unpack[RWLockOptions]) -> RWLock:
        """Describe a read-write lock: several readers, or one writer. No I/O happens.

        Args:
            name: The resource, as for `lock`. A lock made by `lock(name)` counts as a writer.
            options: See `aioredlock_ng.rwlock.RWLockOptions`.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        _check_names("rwlock", options, LockOptions.__optional_keys__)
        on_lost = options.pop("on_lost", "cancel")
        blocking_timeout = _checked(options.pop("blocking_timeout", None), on_lost)
        spec = self._specs.rwlock(name, cast("SpecOptions", options))
        return RWLock(self, spec, blocking_timeout, on_lost)

    def election(self, name: str | bytes, **options: Unpack[ElectionOptions]) -> Election:
        """Describe a candidate of the election `name`. No I/O happens.

        Args:
            name: The name of the election and of its lock, 1 to 65,536 bytes.
            options: See `aioredlock_ng.election.ElectionOptions`.

        Raises:
            ConfigurationError: An argument is invalid, or this manager writes no labels.
        """
        _check_names("election", options, ElectionOptions.__optional_keys__)
        return candidate(self, self._options, self._specs.keys.key(name), name, **options)

    def guard(
        self,
        template: str,
        *,
        limit: int | None = None,
        shared: bool = False,
        **options: Unpack[GuardOptions],
    ) -> Guard:
        """Return a decorator that runs each call inside `async with redlock.lock(name)`.

        docs/workers.md has examples. A call raises the errors of `async with redlock.lock(…)`.
        After a loss, a call raises `LockLost`. The function was then cancelled, or its result was
        discarded.

        Args:
            template: The lock's name. A placeholder names a parameter, or an attribute of a
                parameter, and may have a format: "report:{user.id}:{day:%F}".
            limit: Number of calls that may run at a time under one name. A `semaphore` then
                replaces the `lock`. None: one call at a time, under the `lock`.
            shared: True: the lock is `rwlock(name).read()`. Calls with the same lock name
                may then run at the same time. A call of a guard without `shared` is a writer.
            options: Options of `lock`. With `shared`, options of `rwlock`. `owner` may be a
                template like that of the name, or a function; see `GuardOptions`.

        Raises:
            ConfigurationError: Raised at decoration if the function is not a coroutine function, if
                an argument is invalid, or if both `limit` and `shared` are given. Raised at a call
                if a value has no text that is the same in every process, or contains the separator
                that follows its placeholder. Raised also if the text for `owner` is not one
                printable line of at most 200 bytes. An error of the function `owner` propagates.

        Safety: as in `Lock.acquire`.
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
        name runs the function, or began the function less than `within` seconds ago. A function
        that has begun counts, even if it then fails or is cancelled, or if its process dies.
        docs/workers.md has examples.

        A call waits for its lock for a tenth of `within`, but at most a second. A call raises
        `QuorumUnreachable` if no quorum could decide, and `UpgradeRefused` if its caller holds
        `rwlock(name).read()` of the same name. The function has not begun then. A call raises
        `LockLost` if its lock was lost while the function ran. The function was then cancelled, or
        had finished. After any of these errors, another call may run the function.

        Args:
            template: The name, as for `guard`.
            within: Shortest time in seconds between two starts of the function. At most `max_ttl`.

        Raises:
            ConfigurationError: Raised in the cases of `guard`, and if `within` is invalid.

        Safety: as in `Lock.acquire`. A call that is cancelled before the function begins leaves no
        key.
        """
        within = self._options.check_min_hold(within, None, "within")
        lock = partial(self.lock, blocking_timeout=wait_of(within), min_hold=within)
        return once(lock, template)


def _check_names(method: str, options: Collection[str], known: Collection[str]) -> None:
    for name in options:
        if name not in known:
            raise TypeError(f"Redlock.{method}() got an unexpected keyword argument {name!r}")


def _checked(blocking_timeout: float | None, on_lost: OnLost) -> float | None:
    """Check the two arguments that `Lock` itself uses, and return `blocking_timeout`."""
    if on_lost not in ("cancel", "flag"):
        raise ConfigurationError(f"on_lost must be 'cancel' or 'flag', got {on_lost!r}")
    if blocking_timeout is None:
        return None
    return positive_seconds("blocking_timeout", blocking_timeout, zero=True)
