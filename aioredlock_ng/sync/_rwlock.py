"""Define the read-write lock for threads: several readers, or one writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioredlock_ng.sync._lock import Lock, right_use
from aioredlock_ng.usage import call_of, unsupported

if TYPE_CHECKING:
    import aioredlock_ng
    from aioredlock_ng.sync._lock import Manager, OnLost

__all__ = ["RWLock", "ReadLock", "WriteLock"]


def _sides(lock: RWLock) -> str:
    call = call_of("rwlock", lock._writing.resources[0])
    return f"`with {call}.read():`, or `with {call}.write():`"


@unsupported("with", "async with", "await", "acquire", instead=_sides)
class RWLock:
    """A named read-write lock, made by `Redlock.rwlock`.

    `read()` and `write()` return locks, which are used like a `Lock`. Any number of readers, or one
    writer, hold the lock at a time. `aioredlock_ng.RWLock` explains how readers and writers take
    turns.
    """

    __slots__ = ("_of", "_writing")

    def __init__(
        self,
        manager: Manager,
        name: str | bytes,
        options: dict[str, Any],
        on_lost: OnLost | None,
    ) -> None:
        self._of = (manager, (name,), options, on_lost)
        # Invalid arguments must raise an error here, and not only at the first acquire.
        self._writing = WriteLock(*self._of)

    @property
    def resource(self) -> str:
        """Name of the lock."""
        return self._writing.resource

    def read(self) -> ReadLock:
        """Return the lock for readers.

        The fence of a read lease can serve as the version of the data that the reader reads; see
        `aioredlock_ng.RWLock.read`.

        Inside `read()`, a thread may acquire `read()` again. The inner lease may get the ttl of
        the outer lease instead of its own. Inside `read()`, `write()` immediately raises
        `UpgradeRefused`.
        """
        return ReadLock(*self._of)

    def write(self) -> WriteLock:
        """Return the lock for writers.

        `lease.downgrade()` turns a write lease into a read lease.
        """
        return WriteLock(*self._of)

    def __repr__(self) -> str:
        return f"<RWLock {self.resource!r} ttl={self._writing.ttl:g}>"


@unsupported(
    "async with",
    "await",
    instead=lambda side: right_use(f"{call_of('rwlock', side.resources[0])}.read()"),
)
class ReadLock(Lock):
    """The readers' side of a read-write lock, made by `RWLock.read` and used like a `Lock`.

    `LockHeld` and `AcquireTimeout` mean that a writer had the lock, or waited for it.
    """

    __slots__ = ()

    def described_by(self, redlock: aioredlock_ng.Redlock) -> aioredlock_ng.Lock:
        """Return the readers' side of the asyncio lock with these settings.

        Internal: for `Lock`.
        """
        return _described_by(redlock, self.resources, self._options).read()


@unsupported(
    "async with",
    "await",
    instead=lambda side: right_use(f"{call_of('rwlock', side.resources[0])}.write()"),
)
class WriteLock(Lock):
    """The writers' side of a read-write lock, made by `RWLock.write` and used like a `Lock`."""

    __slots__ = ()

    def described_by(self, redlock: aioredlock_ng.Redlock) -> aioredlock_ng.Lock:
        """Return the writers' side of the asyncio lock with these settings.

        Internal: for `Lock`.
        """
        return _described_by(redlock, self.resources, self._options).write()


def _described_by(
    redlock: aioredlock_ng.Redlock, resources: tuple[str | bytes, ...], options: dict[str, Any]
) -> aioredlock_ng.RWLock:
    (name,) = resources
    return redlock.rwlock(name, on_lost="flag", **options)
