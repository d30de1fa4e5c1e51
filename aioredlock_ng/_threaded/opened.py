"""Define a manager that is open in a thread of its own, and close both."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from aioredlock_ng._engine.attempt.releases import outlast_cancellation
from aioredlock_ng._engine.keeping.extender import UNKEPT
from aioredlock_ng._threaded.engine_thread import UNDONE_WITHIN, EngineThread
from aioredlock_ng.errors import RedlockClosed

if TYPE_CHECKING:
    from concurrent.futures import Future

    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._threaded.calls import Call

__all__ = ["Manager", "Opened", "let_expire"]


class Manager(Protocol):
    """The part of `Redlock` that a thread of its own needs."""

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

    def close(self) -> None:
        """Close the manager, and wait for the end of its thread. Idempotent.

        Safety: if the call is interrupted, the manager is closed nevertheless. The exception is
        raised afterwards, or after `UNDONE_WITHIN` seconds.
        """
        try:
            self.begin_close()
            self.thread.join()
        except BaseException:
            # The exception may have come before the closing had begun.
            self.begin_close()
            self.thread.join(UNDONE_WITHIN)
            raise

    async def aclose(self) -> None:
        """Do the same as `close`, for a task.

        Safety: the manager is closed completely before a cancellation is raised.
        """
        if not self.thread.here:
            self.begin_close()
            await _until_done(self.thread.ended)
            return
        # A task on the thread itself, for example of a sink, cannot wait for the end of the thread.
        try:
            await self._close()
        finally:
            self.begin_close()

    def begin_close(self) -> None:
        """Let the thread close the manager and end. A thread that has died does so by itself."""
        self.thread.end_after(self._close)

    async def _close(self) -> None:
        if not self.outcome.done():
            self.opening.abandon()
            await _until_done(self.outcome)
        await self.redlock.aclose()


async def let_expire(redlock: Manager, thread: EngineThread) -> None:
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


async def _until_done(outcome: Future[Any]) -> None:
    """Wait for an outcome that exists in bounded time. A cancellation is raised afterwards."""
    done = asyncio.wrap_future(outcome)
    try:
        await asyncio.wait([done])
    except asyncio.CancelledError:
        await outlast_cancellation(lambda: not done.done(), lambda: asyncio.wait([done]))
        raise
    finally:
        # asyncio would otherwise log the exception as never retrieved.
        done.exception()
