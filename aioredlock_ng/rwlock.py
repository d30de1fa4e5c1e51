"""Define the read-write lock: several readers, or one writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from aioredlock_ng.lock import Lock
from aioredlock_ng.usage import call_of, unsupported

if TYPE_CHECKING:
    from aioredlock_ng._engine.spec import LockSpec
    from aioredlock_ng.lock import OnLost, Source

__all__ = ["CommonOptions", "RWLock", "RWLockOptions", "ReadLock", "WriteLock"]


class CommonOptions(TypedDict, total=False):
    """Arguments that `Redlock.rwlock` and `Redlock.guard` have in common."""

    ttl: float | None
    blocking_timeout: float | None
    auto_extend: bool
    max_hold: float | None
    on_lost: OnLost
    fail_fast: bool


class RWLockOptions(CommonOptions, total=False):
    """Arguments of `Redlock.rwlock` besides the name. `Redlock.lock` explains each argument."""

    owner: str | None


def _sides(lock: RWLock) -> str:
    call = call_of("rwlock", lock._writing.resources[0])
    return f"`async with {call}.read():`, or `async with {call}.write():`"


@unsupported("with", "async with", "await", "acquire", instead=_sides)
class RWLock:
    """A named read-write lock, made by `Redlock.rwlock`.

    `read()` and `write()` return locks, which are used like a `Lock`. Any number of readers, or one
    writer, hold the lock at a time. A holder of `redlock.lock(name)` counts as a writer. So
    does the holder of a lock that another library has set on the same key.

    Readers and writers alternate. A waiting writer keeps new readers out. After a writer, all
    waiting readers enter together. So neither side starves.

    A reader that dies keeps writers out until the ttl of its lease is over.
    """

    __slots__ = ("_blocking_timeout", "_on_lost", "_source", "_writing")

    def __init__(
        self, source: Source, writing: LockSpec, blocking_timeout: float | None, on_lost: OnLost
    ) -> None:
        self._source = source
        self._writing = writing
        self._blocking_timeout = blocking_timeout
        self._on_lost = on_lost

    @property
    def resource(self) -> str:
        """Name of the lock."""
        return self._writing.resource

    def read(self) -> ReadLock:
        """Return the lock for readers.

        The fence of a read lease is not below the fence of any earlier writer, and is below the
        fence of every later writer. So the fence can serve as the version of the data that the
        reader reads. Readers may have the same fence. Tasks of a process that begin to read within
        a short time share one grant.

        Inside `read()`, a task may acquire `read()` again, even while a writer waits. The inner
        lease may get the ttl of the outer lease instead of its own. Inside `read()`, a task must
        not acquire `write()`. The call immediately raises `UpgradeRefused`, which is a `LockHeld`.
        """
        reading = self._writing.reading
        assert reading is not None
        return ReadLock(self._source, reading, self._blocking_timeout, self._on_lost)

    def write(self) -> WriteLock:
        """Return the lock for writers.

        `await lease.downgrade()` turns a write lease into a read lease.
        """
        return WriteLock(self._source, self._writing, self._blocking_timeout, self._on_lost)

    def __repr__(self) -> str:
        return f"<RWLock {self.resource!r} ttl={self._writing.life.ttl:g}>"


def _right_use(side: Lock) -> str:
    verb = "read" if isinstance(side, ReadLock) else "write"
    call = f"{call_of('rwlock', side.resources[0])}.{verb}()"
    return f"`async with {call}:`, or `lease = await {call}.acquire()`"


@unsupported("with", "await", instead=_right_use)
class ReadLock(Lock):
    """The readers' side of a read-write lock, made by `RWLock.read` and used like a `Lock`.

    `LockHeld` and `AcquireTimeout` mean that a writer had the lock, or waited for it.
    """

    __slots__ = ()


@unsupported("with", "await", instead=_right_use)
class WriteLock(Lock):
    """The writers' side of a read-write lock, made by `RWLock.write` and used like a `Lock`."""

    __slots__ = ()
