"""Open a manager in a thread of its own, once per process, and close it when the process ends."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakSet

from aioredlock_ng._threaded.engine_thread import EngineThread
from aioredlock_ng._threaded.exits import at_end_of_child
from aioredlock_ng._threaded.greenlets import refuse_greenlets
from aioredlock_ng._threaded.opened import Manager, Opened, let_expire
from aioredlock_ng.errors import RedlockClosed

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

__all__ = ["PerProcess"]

M = TypeVar("M", bound=Manager)


_all: Final[WeakSet[PerProcess[Any]]] = WeakSet()

_prepared = 0
"""The id of the last process that called `at_end_of_child`."""

_inherited: Final[list[Opened[Any]]] = []
"""The parent's managers, in a forked child. These references prevent the garbage collector from
closing the managers' event loops; see `EngineThread.disown`."""


class PerProcess(Generic[M]):
    """The manager of the current process, which a forked child replaces by its own.

    Args:
        make: Makes a manager that is not open yet.
        opens_itself: True: the manager opens at its first use. False: the manager opens at its
            first use only in a forked child, and only if the manager was open in the parent.
        begun: Called on the engine's loop when the manager is open.
    """

    def __init__(
        self,
        make: Callable[[], M],
        *,
        opens_itself: bool = True,
        begun: Callable[[M], object] | None = None,
    ) -> None:
        self._make = make
        self._begun = begun
        self._opened: Opened[M] | None = None
        self._closing: Opened[M] | None = None
        self._closed = not opens_itself
        # The lock is reentrant, because `_judge` may run inside `_begin`.
        self._opening = threading.RLock()
        _all.add(self)

    @property
    def here(self) -> Opened[M] | None:
        """The manager of this process; None before the first use and after the closing."""
        return _of_this_process(self._opened)

    def open(self, *, again: bool = False) -> Opened[M]:
        """Return the open manager, which the first call opens.

        Args:
            again: Open the manager even if it was closed.

        Raises:
            RedlockClosed: The manager was closed, or the thread of its locks has ended.

        Safety: if the call is interrupted, the opening is undone, or the manager is open until
        `close` or the end of the process.
        """
        here = self.here or self._begin(again=again)
        if not here.outcome.done():
            here.thread.wait(here.opening, here.outcome)
        here.outcome.result()
        return here

    async def opened(self, *, again: bool = False) -> Opened[M]:
        """Do the same as `open`, for a task.

        Safety: a cancellation ends only the wait. `aclose` ends the opening.
        """
        here = self.here or self._begin(again=again)
        if not here.outcome.done():
            # Other tasks wait for the same opening, so this task must not cancel it.
            await asyncio.shield(asyncio.wrap_future(here.outcome))
        here.outcome.result()
        return here

    def close(self) -> None:
        """Close the manager of this process, if there is one. Idempotent.

        The call also waits for the end of a thread that has died.

        Raises:
            RedlockError: The call comes from the thread itself, which would wait for itself.

        Safety: if the call is interrupted, a further call goes on with the closing.
        """
        here = self.here or _of_this_process(self._closing)
        if here is not None:
            here.thread.refuse_here()
        here = self._forget()
        if here is not None:
            here.close()
            self._forget_closed(here)

    async def aclose(self) -> None:
        """Do the same as `close`, for a task.

        Safety: the manager is closed completely before a cancellation is raised.
        """
        if self.here is not None:
            refuse_greenlets()
        here = self._forget()
        if here is not None:
            await here.aclose()
            self._forget_closed(here)

    def after_fork(self) -> None:
        """Forget the parent's manager in a forked child, which lacks the parent's threads."""
        for opened in (self._opened, self._closing):
            if opened is not None:
                opened.thread.disown()
                _inherited.append(opened)
        self._opened = self._closing = None
        # A thread of the parent may have held the old lock at the fork. In the child, nobody
        # releases that lock.
        self._opening = threading.RLock()

    def _begin(self, *, again: bool) -> Opened[M]:
        with self._opening:
            here = self.here
            if here is not None:
                return here
            if self._closed and not again:
                raise RedlockClosed(
                    "this Redlock is not open, or is closed again; call open(), or make a new one"
                )
            # A server such as gunicorn may patch threads after the manager was made.
            refuse_greenlets()
            redlock, thread = self._make(), EngineThread()
            thread.last_act = partial(let_expire, redlock, thread)

            async def begin() -> None:
                await redlock.open()
                if self._begun is not None:
                    self._begun(redlock)

            try:
                thread.launch()
                opening, outcome = thread.start(begin)
                here = self._opened = Opened(os.getpid(), thread, redlock, opening, outcome)
                self._closed = False
                _prepare_end()
                outcome.add_done_callback(partial(self._judge, here))
            except BaseException:
                # A signal handler may raise an exception at any line.
                self._opened = None
                thread.end_after(redlock.aclose)
                raise
            return here

    def _judge(self, here: Opened[M], outcome: Future[Any]) -> None:
        """End the thread of a manager that could not be opened."""
        if outcome.cancelled() or outcome.exception() is not None:
            with self._opening:
                if self._opened is here:
                    self._opened, self._closed = None, True
            here.begin_close()

    def _forget(self) -> Opened[M] | None:
        """Return the manager that must be closed."""
        with self._opening:
            self._closed = True
            # The manager stays in `_closing` until it is closed. If this closing is interrupted, a
            # further one finds the manager there.
            self._closing = self.here or self._closing
            self._opened = None
        return _of_this_process(self._closing)

    def _forget_closed(self, here: Opened[M]) -> None:
        with self._opening:
            if self._closing is here:
                self._closing = None


def _of_this_process(opened: Opened[M] | None) -> Opened[M] | None:
    # A fork by a C library does not run Python's hooks, so the process id is compared.
    return opened if opened is not None and opened.process == os.getpid() else None


def _prepare_end() -> None:
    """Let a child of `multiprocessing` close its managers at its end, even without `atexit`."""
    global _prepared
    if _prepared != (process := os.getpid()):
        _prepared = process
        at_end_of_child(_at_exit)


def _after_fork() -> None:
    for process in list(_all):
        process.after_fork()


def _at_exit() -> None:
    for process in list(_all):
        # An error of one manager must not leave the other managers open.
        with suppress(Exception):
            process.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
