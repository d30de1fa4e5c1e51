"""Define the lease of a manager with a thread of its own: its methods run on the engine's loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._engine.acting import acting_task
from aioredlock_ng._held import CLOSED_AMID
from aioredlock_ng.errors import LockLost, RedlockClosed, RedlockError
from aioredlock_ng.lease import Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._engine.keeping.holding import Holding
    from aioredlock_ng._threaded.engine_thread import EngineThread
    from aioredlock_ng._threaded.mailbox import Mailbox

__all__ = ["ThreadedLease"]


class ThreadedLease(Lease):
    """A lease that is renewed by a thread of its own.

    A method that only reads runs where it is called. Any other method of `Lease` runs on the
    engine's loop, and this class brings it there.
    """

    __slots__ = ("_body", "_home", "_on_lost", "_still_used", "_thread")

    def __init__(
        self, engine: Engine, holding: Holding, thread: EngineThread, home: Mailbox | None
    ) -> None:
        super().__init__(engine, holding)
        self._thread = thread
        # The way to the holder's loop, to which a loss is reported.
        self._home = home
        self._body: asyncio.Task[object] | None = None
        self._on_lost: Callable[[], None] | None = None
        self._still_used: Callable[[Callable[[], None]], bool] | None = None

    @classmethod
    def of(cls, lease: Lease, thread: EngineThread, home: Mailbox | None) -> ThreadedLease:
        """Return the lease for its holder. This runs on the engine's loop.

        Args:
            lease: The lease as the engine's loop sees it.
            thread: The engine's thread.
            home: The way to the holder's loop.
        """
        lease._holding.home = home
        return cls(lease._engine, lease._holding, thread, home)

    def refuse_closed(self) -> None:
        """Check that the manager was not closed before the caller got the lease.

        Raises:
            RedlockClosed: The manager was closed.
        """
        if self._holding.phase is Phase.RELEASED:
            raise RedlockClosed(CLOSED_AMID)

    async def give_back(self) -> None:
        """Undo the acquisition, because no caller got the lease. This runs on the engine's loop."""
        self.forgo_min_hold()
        await super().release()

    def remaining(self) -> float:
        """Return the seconds for which the lock is certainly ours; see `Lease.remaining`."""
        return 0.0 if self._thread.dead else super().remaining()

    def check(self) -> None:
        """Raise an error unless the lock is still ours; see `Lease.check`."""
        try:
            super().check()
        except LockLost:
            if not self._thread.here:
                # The body learns of the loss by this error, so it must not be cancelled as well.
                if self._body is not None and self._body is _current_task():
                    self._on_lost = None
                self._thread.post(self._engine.extender.check, self._holding)
            raise

    async def verify(self) -> None:
        """Ask the nodes whether a quorum still holds the token; see `Lease.verify`."""
        self._raise_if_over()
        await self._ask(super().verify)

    async def extend(self, ttl: float | None = None) -> None:
        """Renew the lease now; see `Lease.extend`."""
        await self._ask(lambda: Lease.extend(self, ttl))

    async def release(self) -> bool:
        """Release the lock; see `Lease.release`."""
        if self._holding.phase is not Phase.HELD or self._thread.dead:
            return False
        if self._is_used():
            return True
        return await self._thread.finish(super().release)

    def abandon(self) -> None:
        """Stop the renewal and let the lock expire; see `Lease.abandon`."""
        self._run(super().abandon)

    async def wait_lost(self) -> None:
        """Wait until the lease is lost, released or abandoned; see `Lease.wait_lost`."""
        try:
            await self._thread.call(super().wait_lost)
        except RedlockClosed:
            if self.remaining() > 0.0:
                raise

    def entered(self, task: asyncio.Task[object], on_lost: Callable[[], None] | None) -> None:
        """Record that `task` enters an `async with`; see `Held.entered`."""
        self.refuse_closed()
        self._refuse_over()
        self._body, self._on_lost = task, on_lost
        self._thread.post(self._enter, task)

    def left(self) -> None:
        """Record that the `async with` was left; see `Held.left`."""
        self._body = self._on_lost = None
        self._thread.post(super().left)

    def let_go(self) -> None:
        """End the lease without waiting for the nodes; see `Held.let_go`."""
        if self._is_used():
            self.left()
        else:
            self._thread.post(super().let_go)

    def used_by(self, still_used: Callable[[Callable[[], None]], bool]) -> None:
        """Declare that a thread may work under the lease; see `Held.used_by`."""
        self._still_used = still_used
        # The engine asks at the end of the manager.
        super().used_by(still_used)

    def lose(self, reason: str) -> None:
        """Lose the lease with every effect of a real loss; see `Held.lose`."""
        self._run(lambda: super(ThreadedLease, self).lose(reason))

    async def _ask(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await self._thread.call(make)
        except RedlockError:
            raise
        except BaseException:
            # A body that asks gets a loss as an exception, and is not cancelled. This body was
            # interrupted before it got the exception.
            self._thread.post(self._report_again)
            raise

    def _report_again(self) -> None:
        if self._holding.phase is Phase.LOST and self._home is not None:
            with suppress(RuntimeError):
                self._home.post(self._notify_body)

    def _run(self, change: Callable[[], None]) -> None:
        """Change the lease on the engine's loop before this returns."""

        async def run() -> None:
            change()

        if self._thread.here:
            change()
        else:
            self._thread.run(run)

    def _enter(self, task: asyncio.Task[object]) -> None:
        holding = self._holding
        if holding.phase is Phase.HELD:
            holding.task, holding.on_lost = task, self._report_loss
        else:
            self._report_loss()

    def _report_loss(self) -> None:
        """Report a loss to the body. This runs on the engine's loop."""
        # A body that finds the loss itself, by a call of a method, gets an exception instead.
        if self._home is not None and self._body is not acting_task():
            with suppress(RuntimeError):
                self._home.post(self._notify_body)

    def _notify_body(self) -> None:
        """Call `on_lost` on the holder's loop, unless the body has ended meanwhile."""
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost()

    def _is_used(self) -> bool:
        """Return True while a thread of the holder works under the lease.

        Only the holder's loop knows this for sure, so the engine's loop is not to decide it again.
        """
        still_used = self._still_used
        return (
            still_used is not None
            and not self._thread.here
            and still_used(lambda: self._thread.post(self._thread_ended))
        )


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
