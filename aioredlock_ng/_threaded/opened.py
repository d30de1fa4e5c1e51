"""A manager in a thread of its own, from its opening to its closing."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from aioredlock_ng._engine.keeping.extender import UNKEPT
from aioredlock_ng._threaded.engine_thread import UNDONE_WITHIN, EngineThread
from aioredlock_ng._threaded.latch import Latch

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._engine.engine import Engine

__all__ = ["Manager", "Opened"]


class Manager(Protocol):
    """The methods of `Redlock` that `Opened` calls on the engine's thread."""

    async def open(self) -> object:
        """Connect to the nodes."""

    async def aclose(self) -> None:
        """Release the leases and disconnect."""

    def engine(self) -> Engine:
        """Return the open engine, or raise `RedlockClosed`."""

    async def opened_engine(self) -> Engine:
        """Do the same as `engine`."""

    _threaded: Any


M = TypeVar("M", bound=Manager)


class Opened(Generic[M]):
    """A manager that is open in one process, or is about to open, in a thread of its own.

    Args:
        redlock: The manager.
        begun: Called on the engine's loop when the manager is open.
        owner: The object that closes the manager at the end of the process. A program may keep
            only a lease. So the thread keeps the owner alive until the thread has ended.

    Attributes:
        thread: The thread of the manager's event loop.
        outcome: A latch that is set when the opening has succeeded or failed.
        closer: The event loop that closes the manager, if any. Must be set before `begin_close`.
    """

    def __init__(
        self, redlock: M, begun: Callable[[Opened[M]], object] | None, owner: object = None
    ) -> None:
        self.redlock = redlock
        self._owner = owner
        self.thread = EngineThread()
        self.thread.last_act = self._let_expire
        self._begun = begun
        self._process = os.getpid()
        self._engine: Engine | None = None
        self._closing = False
        self.closer: asyncio.AbstractEventLoop | None = None
        self._closed: Latch[None] = Latch()
        self._opening, self.outcome = self.thread.start(self._open)

    @property
    def of_this_process(self) -> bool:
        """False in a forked child of the process that opened the manager."""
        # A fork by a C library does not run Python's hooks, so the process id is compared.
        return self._process == os.getpid()

    @property
    def usable(self) -> bool:
        """True in the process of the manager, until its closing begins or its opening fails."""
        return self.of_this_process and not self._closing and self.outcome.error is None

    def begin_close(self) -> None:
        """Make the thread close the manager, and then end. Idempotent."""
        self._closing = True
        self.thread.end_after(self._close)

    async def opened(self) -> None:
        """Wait until the manager is open, or raise the error of the opening.

        Safety: a cancellation ends only the wait.
        """
        if not self.outcome.done():
            await self.outcome.arrival()
        self.outcome.result()

    def close(self) -> None:
        """Close the manager, and wait for the end of its thread. Idempotent.

        Safety: if the call is interrupted, the closing goes on without it.
        """
        self.begin_close()
        self.thread.ended.wait()
        self._raise_error()

    async def aclose(self) -> None:
        """Do the same as `close`, for a task.

        Safety: the manager is closed completely before a cancellation is raised.
        """
        self.begin_close()
        # A task on this thread, for example in a sink, cannot wait for the end of its own thread.
        await (self._closed if self.thread.here else self.thread.ended).outlast()
        self._raise_error()

    def _raise_error(self) -> None:
        # If the loop cannot run any more, `_closed` is never set, and `_closed.result()` would
        # block.
        if self._closed.error is not None:
            raise self._closed.error

    async def _open(self) -> None:
        try:
            await self.redlock.open()
            self._engine = self.redlock.engine()
            if self._begun is not None:
                self._begun(self)
        except BaseException:
            self.begin_close()
            raise

    async def _close(self) -> None:
        try:
            if not self.outcome.done():
                self._opening.abandon()
                await self.outcome.outlast()
            if self._engine is not None:
                self._engine.closer = self.closer
            await self.redlock.aclose()
        except Exception as error:
            self._closed.set_exception(error)
        finally:
            self._closed.set_result(None)

    async def _let_expire(self) -> None:
        """Close the manager after an unexpected end of its thread, and let its leases expire.

        The keys are not deleted, because the holders of the leases may work on until they notice
        the loss. After a deletion, the old and the next holder could work at the same time.
        """
        if self._engine is not None:
            for record in list(self._engine.extender.leases):
                # Even if a sink raises an exception, the other leases must be declared lost.
                with suppress(Exception, SystemExit, KeyboardInterrupt):
                    reason = f"{UNKEPT}; {self.thread.dead}"
                    self._engine.extender.forsake(record, reason, dead=True)
        await self._close()
        if self._engine is not None:
            # A SystemExit of a sink may have broken off an earlier closing, so disconnect the nodes
            # here.
            nodes = self._engine.context.fleet.nodes
            await asyncio.gather(*(node.aclose(UNDONE_WITHIN) for node in nodes))
