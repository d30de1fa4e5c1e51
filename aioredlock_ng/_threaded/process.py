"""Open a manager in a thread of its own, once per process, and close it when the process ends."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from aioredlock_ng._engine.attempt.releases import outlast_cancellation
from aioredlock_ng._engine.keeping.extender import UNKEPT
from aioredlock_ng._threaded.engine_thread import UNDONE_WITHIN, EngineThread
from aioredlock_ng._threaded.exits import at_end_of_child
from aioredlock_ng._threaded.greenlets import refuse_greenlets
from aioredlock_ng.errors import RedlockClosed

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._threaded.calls import Call

__all__ = ["Manager", "Opened", "PerProcess"]


class Manager(Protocol):
    """The part of `Redlock` that this module needs."""

    async def open(self) -> object:
        """Connect to the nodes."""

    async def aclose(self) -> None:
        """Release the leases and disconnect."""

    def engine(self) -> Engine:
        """Return the open engine, or raise `RedlockClosed`."""

    _threaded: Any


M = TypeVar("M", bound=Manager)


class Opened(NamedTuple, Generic[M]):
    """A manager that is open in one process, or is about to open.

    Attributes:
        process: The id of the process, by which a forked child notices the fork.
        thread: The thread of the manager's event loop.
        opening: The call that opens the manager.
        outcome: A future that is resolved when the manager is open, or fails with the error of the
            opening.
    """

    process: int
    thread: EngineThread
    redlock: M
    opening: Call[Any]
    outcome: Future[Any]


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
        self._closed = not opens_itself
        self._opening = threading.Lock()
        _all.add(self)

    @property
    def here(self) -> Opened[M] | None:
        """The manager of this process; None before the first use and after the closing."""
        opened = self._opened
        # A fork by a C library does not run Python's hooks, so the process id is compared.
        return opened if opened is not None and opened.process == os.getpid() else None

    def open(self, *, again: bool = False) -> Opened[M]:
        """Return the open manager, which the first call opens.

        Args:
            again: Open the manager even if it was closed.

        Raises:
            RedlockClosed: The manager was closed, or the thread of its locks has ended.

        Safety: if the call is interrupted, everything is closed again.
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
            RedlockClosed: The thread dies meanwhile.
            RedlockError: The call comes from the thread itself, which would wait for itself.
        """
        if self.here is not None:
            self.here.thread.refuse_here()
        here = self._forget()
        if here is None:
            return
        try:
            # A thread that has died closes its manager by itself.
            if here.thread.dead:
                pass
            elif here.outcome.done():
                here.thread.run(here.redlock.aclose, to_end=True)
            else:
                here.thread.abandon(here.opening)
                here.opening.await_over(UNDONE_WITHIN)
        finally:
            here.thread.stop()

    async def aclose(self) -> None:
        """Do the same as `close`, for a task.

        Raises:
            RedlockClosed: The thread dies meanwhile.

        Safety: the manager is closed completely before a cancellation is raised.
        """
        if self.here is not None:
            refuse_greenlets()
        here = self._forget()
        if here is None:
            return
        try:
            # A thread that has died closes its manager by itself.
            if not here.thread.dead:
                await self._close_on(here)
        finally:
            here.thread.end()
            # A task on the thread itself, for example of a sink, cannot wait for the end of the
            # thread.
            if not here.thread.here:
                await _until_done(here.thread.ended)

    async def _close_on(self, here: Opened[M]) -> None:
        if here.outcome.done():
            await here.thread.finish(here.redlock.aclose)
        else:
            here.thread.abandon(here.opening)
            await _until_done(here.outcome)

    def after_fork(self) -> None:
        """Forget the parent's manager in a forked child, which lacks the parent's threads."""
        if self._opened is not None:
            self._opened.thread.disown()
            _inherited.append(self._opened)
            self._opened = None
        # A thread of the parent may have held the old lock at the fork. In the child, nobody
        # releases that lock.
        self._opening = threading.Lock()

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
            thread.last_act = partial(_let_expire, redlock, thread)

            async def begin() -> None:
                await redlock.open()
                if self._begun is not None:
                    self._begun(redlock)

            opening, outcome = thread.start(begin)
            here = self._opened = Opened(os.getpid(), thread, redlock, opening, outcome)
            self._closed = False
            _prepare_end()
        outcome.add_done_callback(partial(self._judge, here))
        return here

    def _judge(self, here: Opened[M], outcome: Future[Any]) -> None:
        """End the thread of a manager that could not be opened."""
        if outcome.cancelled() or outcome.exception() is not None:
            with self._opening:
                if self._opened is here:
                    self._opened, self._closed = None, True
            here.thread.end()

    def _forget(self) -> Opened[M] | None:
        with self._opening:
            self._closed = True
            here, self._opened = self.here, None
        return here


async def _until_done(outcome: Future[Any]) -> None:
    done = asyncio.wrap_future(outcome)
    await outlast_cancellation(lambda: not done.done(), lambda: asyncio.wait([done]))
    # asyncio would otherwise log the exception as never retrieved.
    done.exception()


async def _let_expire(redlock: Manager, thread: EngineThread) -> None:
    """Close a manager whose thread ends unexpectedly, and let its leases expire.

    The keys are not deleted, because the holders of the leases may work on until they notice the
    loss. After a deletion, the old and the next holder could work at the same time.
    """
    with suppress(RedlockClosed):
        extender = redlock.engine().extender
        for record in list(extender.leases):
            # Even if a sink raises an exception, the other leases must be declared lost.
            with suppress(Exception, SystemExit, KeyboardInterrupt):
                extender.forsake(record, f"{UNKEPT}; {thread.dead}")
    await redlock.aclose()


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
