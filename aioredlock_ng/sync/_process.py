"""Open a manager once per process, at its first use, and close it when the interpreter exits."""

from __future__ import annotations

import atexit
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakSet

from aioredlock_ng.errors import RedlockClosed
from aioredlock_ng.sync._thread import EngineThread

if TYPE_CHECKING:
    from collections.abc import Callable

    import aioredlock_ng
    from aioredlock_ng.sync._lease import Lease

__all__ = ["Entry", "Opened", "PerProcess"]


class Entry(NamedTuple):
    """One open `with`: the lock whose `with` it is, and its lease."""

    owner: object
    lease: Lease


class Opened(NamedTuple):
    """A manager that is open in one process."""

    process: int
    thread: EngineThread
    redlock: aioredlock_ng.Redlock


class _Inside(threading.local):
    """The open `with` entries of the current thread, oldest first."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []


_all: Final[WeakSet[PerProcess]] = WeakSet()

_inherited: Final[list[Opened]] = []
"""In a forked child, the managers of the parent. The references keep their event loops from being
closed by the garbage collector. See `EngineThread.disown` for the reason."""


class PerProcess:
    """The manager of this process.

    Args:
        make: Makes a manager that is not open yet.
    """

    def __init__(self, make: Callable[[], aioredlock_ng.Redlock]) -> None:
        self._make = make
        self._opened: Opened | None = None
        self._closed = False
        self._opening = threading.Lock()
        self._inside = _Inside()
        _all.add(self)

    @property
    def here(self) -> Opened | None:
        """The manager that is open in this process; None before the first use and after `close`."""
        opened = self._opened
        # A fork by a C library does not run Python's hooks, so the process id is compared.
        return opened if opened is not None and opened.process == os.getpid() else None

    @property
    def inside(self) -> list[Entry]:
        """The open `with` entries of the current thread, oldest first."""
        return self._inside.entries

    def open(self, *, again: bool = False) -> Opened:
        """Return the open manager. Open it at the first call.

        Args:
            again: Open the manager even if it was closed.

        Raises:
            RedlockClosed: The manager was closed, or the thread of its locks has ended.

        Safety: if the call is interrupted, everything is closed again.
        """
        here = self.here
        if here is None:
            with self._opening:
                here = self.here
                if here is None:
                    if self._closed and not again:
                        raise RedlockClosed(
                            "this Redlock is closed; call open(), or make a new one"
                        )
                    here = self._opened = self._begin()
                    self._closed = False
        return here

    def close(self) -> None:
        """Close the manager of this process, if there is one. Idempotent."""
        with self._opening:
            self._closed = True
            here, self._opened = self.here, None
        if here is not None and not here.thread.dead:
            try:
                here.thread.run(here.redlock.aclose)
            finally:
                here.thread.stop()

    def after_fork(self) -> None:
        """Forget the parent's manager in a forked child, which lacks the parent's threads."""
        if self._opened is not None:
            self._opened.thread.disown()
            _inherited.append(self._opened)
            self._opened = None
        # A thread of the parent may hold the old lock for ever.
        self._opening = threading.Lock()
        self._inside = _Inside()

    def _begin(self) -> Opened:
        redlock, thread = self._make(), EngineThread()
        try:
            thread.run(redlock.open)
        except BaseException:
            thread.stop()
            raise
        thread.last_act = partial(_let_expire, redlock, thread)
        return Opened(os.getpid(), thread, redlock)


async def _let_expire(redlock: aioredlock_ng.Redlock, thread: EngineThread) -> None:
    """Close a manager whose thread ends unexpectedly, and let its leases expire.

    The keys are not deleted. The threads that hold the leases may work on until they call `check`,
    and the next holder would work beside them.
    """
    held = redlock.leases
    thread.orphans = frozenset(held)
    for lease in held:
        lease.abandon()
    await redlock.aclose()


def _after_fork() -> None:
    for process in _all:
        process.after_fork()


def _at_exit() -> None:
    for process in list(_all):
        process.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
