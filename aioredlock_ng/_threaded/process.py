"""Open a manager in a thread of its own, once per process, and close it when the process ends."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakSet

from aioredlock_ng._engine.loops import running_loop
from aioredlock_ng._threaded.child_exit import at_end_of_child
from aioredlock_ng._threaded.engine_thread import disown_all
from aioredlock_ng._threaded.greenlets import refuse_greenlets
from aioredlock_ng._threaded.opened import Manager, Opened
from aioredlock_ng.errors import RedlockClosed

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PerProcess"]

M = TypeVar("M", bound=Manager)


_all: Final[WeakSet[PerProcess[Any]]] = WeakSet()

_prepared = 0
"""The id of the last process that called `at_end_of_child`."""


class PerProcess(Generic[M]):
    """The manager of the current process. A forked child replaces it by another manager.

    Args:
        make: Makes a manager that is not open yet.
        opens_itself: If True, the manager opens at its first use. If False, the manager opens at
            its first use only in a forked child, and only if the manager was open in the parent.
        begun: Called on the engine's loop when the manager is open.
    """

    def __init__(
        self,
        make: Callable[[], M],
        *,
        opens_itself: bool = True,
        begun: Callable[[Opened[M]], object] | None = None,
    ) -> None:
        self._make = make
        self._begun = begun
        self._opened: Opened[M] | None = None
        self._closed = not opens_itself
        self._closings = 0
        # A signal handler may use the manager while the interrupted thread has the lock. So the
        # lock is reentrant.
        self._opening = threading.RLock()
        _all.add(self)

    @property
    def here(self) -> Opened[M] | None:
        """The manager of this process; None before the first use and after the closing."""
        opened = self._opened
        return opened if opened is not None and opened.usable else None

    def open(self, *, again: bool = False) -> Opened[M]:
        """Return the open manager, which the first call opens.

        Args:
            again: Open the manager even if it was closed.

        Raises:
            RedlockClosed: The manager was closed, or the thread of its locks has ended.
            RedlockError: The call comes from the manager's own thread, which is still opening it.

        Safety: if the call is interrupted while it waits, the opening goes on without it.
        """
        here = self.here or self._begin(again=again)
        if not here.outcome.done():
            here.thread.refuse_here()
        here.outcome.result()
        if here.thread.dead:
            raise here.thread.closed()
        return here

    async def opened(self, *, again: bool = False) -> Opened[M]:
        """Do the same as `open`, for a task.

        Safety: a cancellation ends only the wait. `aclose` ends the opening.
        """
        here = self.here or self._begin(again=again)
        await here.opened()
        return here

    def close(self) -> None:
        """Close the manager of this process, if there is one. Idempotent.

        The call returns after the end of the manager's thread, even if its event loop has failed.

        Raises:
            RedlockError: The call comes from the manager's own thread, and would wait for itself.

        Safety: if the call is interrupted, the closing goes on without it. If the closing had not
        begun yet, a further call begins it.
        """
        opened = self._of_this_process()
        if opened is not None:
            opened.thread.refuse_here()
        opened = self._begin_close()
        if opened is not None:
            opened.close()
            self._drop(opened)

    async def aclose(self) -> None:
        """Do the same as `close`, for a task.

        Safety: the manager is closed completely before a cancellation is raised.
        """
        if (opened := self._of_this_process()) is not None:
            refuse_greenlets()
            opened.closer = running_loop()
        opened = self._begin_close()
        if opened is not None:
            await opened.aclose()
            if not opened.thread.here:
                self._drop(opened)

    def after_fork(self) -> None:
        """Forget the parent's manager in a forked child."""
        self._opened = None
        # A thread of the parent may have held the old lock at the fork. In the child, nobody
        # releases that lock.
        self._opening = threading.RLock()

    def _begin(self, *, again: bool) -> Opened[M]:
        closings = self._closings
        # Refuse a closed manager without taking `_opening`. A sink that waited for this lock would
        # block the engine. The thread that has the lock may itself wait for the engine.
        self._refuse_closed(again=again)
        with self._opening:
            here = self.here
            if here is not None:
                return here
            self._refuse_closed(again=again)
            # A server such as gunicorn may patch threads after the manager was made.
            refuse_greenlets()
            _prepare_end()
            if (earlier := self._of_this_process()) is not None and not earlier.usable:
                # An interrupt may have ended `close` before the closing had begun, so begin it
                # here. A usable manager was opened by a signal handler meanwhile.
                earlier.begin_close()
            opened = Opened(self._make(), self._begun, self)
            try:
                opened.thread.launch()
                # A signal handler may have opened the manager meanwhile.
                here = self.here
                if here is None:
                    self._opened, self._closed = opened, False
                    # A signal handler may have called `close`, which did not find this manager.
                    if self._closings != closings:
                        self._closed = True
                        raise _not_open()
                    return opened
                opened.begin_close()
                return here
            except BaseException:
                # A signal handler may have raised this exception. Close the manager that is being
                # opened.
                opened.begin_close()
                raise

    def _refuse_closed(self, *, again: bool) -> None:
        if self._closed and not again and self.here is None:
            raise _not_open()

    def _begin_close(self) -> Opened[M] | None:
        """Begin to close this process's manager, and return it. Return None if there is none."""
        # This method does not take `_opening`, because a sink may close the manager on the engine's
        # thread. If that thread waited for the lock, it could wait for ever. A signal handler may
        # interrupt the code that has the lock, and then wait for the engine's thread.
        # `_begin` clears `_closed` before it reads `_closings`, so the order matters.
        self._closings += 1
        self._closed = True
        opened = self._of_this_process()
        if opened is not None:
            opened.begin_close()
        return opened

    def _of_this_process(self) -> Opened[M] | None:
        opened = self._opened
        return opened if opened is not None and opened.of_this_process else None

    def _drop(self, closed: Opened[M]) -> None:
        with self._opening:
            if self._opened is closed:
                self._opened = None


def _not_open() -> RedlockClosed:
    return RedlockClosed(
        "this Redlock is not open, or is closed again; call open(), or make a new one"
    )


def _prepare_end() -> None:
    """Make a child of `multiprocessing` close its managers when it ends, even without `atexit`."""
    global _prepared
    if _prepared != (process := os.getpid()):
        at_end_of_child(_at_exit)
        _prepared = process


def _after_fork() -> None:
    disown_all()
    for process in list(_all):
        process.after_fork()


def _at_exit() -> None:
    # A closing may wait for nodes that do not answer. So all closings begin before the first wait.
    for end in (PerProcess._begin_close, PerProcess.close):
        for process in list(_all):
            # An error of one manager must not leave the other managers open.
            with suppress(Exception):
                end(process)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
