"""Define the lease of a manager that has a thread of its own."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aioredlock_ng._core.lease_state import Phase
from aioredlock_ng._engine.caller import calling_task
from aioredlock_ng._engine.keeping.extender import UNKEPT
from aioredlock_ng._engine.keeping.reasons import UNRENEWED
from aioredlock_ng._leases.lease_base import CLOSED_AMID
from aioredlock_ng.errors import LockLost, QuorumUnreachable, RedlockClosed, RedlockError
from aioredlock_ng.lease import Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioredlock_ng._engine.engine import Engine
    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from aioredlock_ng._threaded.engine_thread import EngineThread
    from aioredlock_ng._threaded.mailbox import Mailbox

__all__ = ["ThreadedLease"]


class ThreadedLease(Lease):
    """A lease of a manager whose engine runs in a thread of its own.

    A method that only reads runs in the thread of its caller. A method that asks the nodes runs on
    the engine's loop.
    """

    __slots__ = ("_body", "_home", "_on_lost", "_still_used", "_thread")

    def __init__(
        self, engine: Engine, record: LeaseRecord, thread: EngineThread, home: Mailbox | None
    ) -> None:
        super().__init__(engine, record)
        self._thread = thread
        # The mailbox of the holder's loop, to which a loss is reported.
        self._home = home
        self._body: asyncio.Task[object] | None = None
        self._on_lost: Callable[[], None] | None = None
        self._still_used: Callable[[Callable[[], None]], bool] | None = None

    @classmethod
    def of(cls, lease: Lease, thread: EngineThread, home: Mailbox | None) -> ThreadedLease:
        """Return the lease for a holder on another loop. `home` is the mailbox of that loop.

        The engine's loop runs this method.
        """
        lease._record.home = home
        return cls(lease._engine, lease._record, thread, home)

    @classmethod
    def without_loop(cls, lease: Lease, thread: EngineThread) -> ThreadedLease:
        """Return the lease for a holder that has no event loop. Any thread may call this method."""
        return cls(lease._engine, lease._record, thread, None)

    def refuse_closed(self) -> None:
        """Raise `RedlockClosed` if the manager was closed before the caller got the lease."""
        if self._record.phase is Phase.RELEASED:
            raise RedlockClosed(CLOSED_AMID)

    async def give_back(self) -> None:
        """Undo the acquisition on the engine's loop, because no caller received the lease."""
        self.forgo_min_hold()
        await super().release()

    def remaining(self) -> float:
        return 0.0 if self._thread.dead else super().remaining()

    def _loss(self) -> tuple[str, float]:
        record, now = self._record, self._engine.context.clock()
        if self._thread.dead and not record.reason and now < record.deadline:
            # The thread has ended before it declared the loss of its leases.
            return f"{UNKEPT}; {self._thread.dead}", now
        return super()._loss()

    @property
    def was_gone(self) -> bool:
        undeclared = bool(self._thread.dead) and self._record.phase is Phase.HELD
        return undeclared or super().was_gone

    def check(self) -> None:
        try:
            super().check()
        except LockLost:
            if not self._thread.here:
                self._told_body()
                self._declare_lost()
            raise

    def _told_body(self) -> None:
        """Do not cancel the body for a loss if the body makes this call, which raises the error."""
        if self._body is not None and self._body is _current_task():
            self._on_lost = None

    async def verify(self) -> None:
        try:
            self._raise_if_over()
        except LockLost:
            self._told_body()
            raise
        await self._ask(super().verify)

    async def extend(self, ttl: float | None = None) -> None:
        await self._ask(lambda: Lease.extend(self, ttl))

    async def downgrade(self) -> None:
        try:
            await self._ask(super().downgrade)
        except asyncio.CancelledError:
            # The cancellation may have ended the call on the engine's loop before its first step.
            self._thread.post(self._downgrade_anyway)
            raise

    def _downgrade_anyway(self) -> None:
        record, extender = self._record, self._engine.extender
        extender.check(record)
        # After a downgrade, `reading` is None.
        if record.phase is Phase.HELD and record.spec.reading is not None:
            extender.downgrade(record)

    async def release(self) -> bool:
        if self._record.phase is not Phase.HELD or self._thread.dead:
            return False
        if self._is_used():
            return True
        try:
            return await self._thread.finish(super().release)
        except RedlockClosed:
            # The engine's thread has ended before the answers came. `was_gone` tells whether the
            # lease was lost.
            return False

    def abandon(self) -> None:
        self._run(super().abandon)

    async def wait_lost(self) -> None:
        try:
            await self._thread.call(super().wait_lost)
        except RedlockClosed:
            if self.remaining() > 0.0:
                raise

    def entered(self, task: asyncio.Task[object], on_lost: Callable[[], None] | None) -> None:
        self.refuse_closed()
        try:
            self._refuse_over()
        except QuorumUnreachable:
            self._declare_lost()
            raise
        self._body, self._on_lost = task, on_lost
        # The engine sets the phase of an ended lease before it reads the body. So either the engine
        # sees this body, or the next lines see the end. A post would wake the engine's thread.
        self._record.on_lost, self._record.task = self._report_loss, task
        try:
            # Another loop may have closed the manager meanwhile.
            self.refuse_closed()
        except RedlockClosed:
            self._body = self._on_lost = None
            self._leave()
            raise
        self._report_again()

    def entered_by_thread(self) -> None:
        """Record that a thread enters the `with` of this lease.

        Raises:
            RedlockClosed: As in `refuse_closed`. The block must not begin.
        """
        # The flag is set before the phase is read. `Engine.aclose` reads the flag once more after
        # the release, so either this call or the end of the block finds the closing.
        self._record.thread_inside = True
        self.refuse_closed()

    def left_by_thread(self) -> None:
        """Record that the body of the `with` has ended."""
        self._record.thread_inside = False

    def left(self) -> None:
        self._body = self._on_lost = None
        super().left()

    def ended_lost(self) -> bool:
        lost = self.lost
        if lost:
            self._declare_lost()
        return lost

    def _declare_lost(self) -> None:
        """Declare the lease lost for good, because the holder has seen the loss.

        The engine may receive the confirmation of a renewal at this moment. Without the
        declaration, the engine would keep a lease whose holder has ended its work.
        """
        if not self._thread.dead:
            self._thread.post(self._end_lost)

    def _end_lost(self) -> None:
        extender = self._engine.extender
        extender.check(self._record)
        # If a renewal was confirmed meanwhile, another thread may have seen a valid lease and may
        # still work. So the lease is left to expire, and is not released.
        extender.forsake(self._record, UNRENEWED)

    def let_go(self) -> None:
        self.left()
        if not self._is_used():
            self._thread.post(self._engine.extender.release, self._record)

    def used_by(self, still_used: Callable[[Callable[[], None]], bool]) -> None:
        self._still_used = still_used
        # The engine itself calls `still_used` when the manager is closed.
        super().used_by(still_used)

    def lose(self, reason: str) -> None:
        self._run(lambda: super(ThreadedLease, self).lose(reason))

    async def _ask(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await self._thread.call(make)
        except RedlockError:
            raise
        except BaseException:
            # If the body's own call finds a loss, the call raises `LockLost`, and the body is not
            # cancelled. This call was interrupted before it raised the error, so report the loss
            # again.
            self._thread.post(self._report_again)
            raise

    def _report_again(self) -> None:
        if self._record.phase is Phase.LOST and self._home is not None:
            with suppress(RuntimeError):
                self._home.post(self._notify_body)

    def _run(self, change: Callable[[], None]) -> None:
        """Change the lease on the engine's loop, and wait for the end of the change."""

        async def run() -> None:
            change()

        if self._thread.here:
            change()
        else:
            self._thread.run(run)

    def _report_loss(self) -> None:
        """Report a loss to the body. The engine's loop runs this method."""
        # A body that finds the loss itself, by a call of a method, gets an exception instead.
        if self._home is not None and self._body is not calling_task():
            with suppress(RuntimeError):
                self._home.post(self._notify_body)

    def _notify_body(self) -> None:
        """Call `on_lost` on the holder's loop, unless the body has ended meanwhile."""
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost()

    def _is_used(self) -> bool:
        """Return True while a thread of the holder works under the lease.

        On the engine's thread the result is False, because the holder's loop has already called
        `still_used`.
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
