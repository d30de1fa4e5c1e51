"""Run an event loop in a daemon thread, and call coroutines on it from other threads."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioredlock_ng._threaded.calls import Call, Delivery, run_to_end
from aioredlock_ng._threaded.greenlets import refuse_greenlets
from aioredlock_ng._threaded.latch import Latch
from aioredlock_ng._threaded.mailbox import Mailbox, home
from aioredlock_ng.errors import ConfigurationError, RedlockClosed, RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["UNDONE_WITHIN", "EngineThread", "disown_all"]

T = TypeVar("T")

UNDONE_WITHIN: Final = 1.0
"""Longest time in seconds that an interrupted call waits for its undo, or that a closing loop waits
for its tasks. The undo is a release, which waits for the nodes for at most one node timeout."""

_CLOSED: Final = "it is closed"
"""The reason why a thread serves no calls after an ordinary end."""

_numbers = count(1)

_running: Final[set[EngineThread]] = set()
"""All threads that have not ended. A forked child keeps the parent's threads here. Otherwise the
garbage collector would close their loops; see `EngineThread.disown`."""


class EngineThread:
    """One event loop in a daemon thread.

    Attributes:
        dead: The reason why the thread serves no calls any more. "" while it serves calls.
        pending: The calls whose callers wait for an outcome.
        ended: A latch that is set at the end of the thread, when its loop is closed.
        last_act: Makes the coroutine that runs after an unexpected end of the loop, before the loop
            is closed.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._inbox = Mailbox(self._loop)
        self.pending: set[Call[Any]] = set()
        self._thread = threading.Thread(
            target=self._serve, name=f"aioredlock_ng:{next(_numbers)}", daemon=True
        )
        self._last: asyncio.Task[object] | None = None
        self.dead = ""
        self.ended: Latch[None] = Latch()
        self.last_act: Callable[[], Coroutine[Any, Any, None]] | None = None

    def launch(self) -> None:
        """Start the thread. The loop then runs all calls that were posted before the start."""
        _running.add(self)
        try:
            self._thread.start()
        except RuntimeError:
            _running.discard(self)
            self._loop.close()
            raise

    @property
    def here(self) -> bool:
        """True on the engine's own thread."""
        # After the end of this thread, the system may give its identifier to another thread.
        return threading.get_ident() == self._thread.ident and not self.ended.done()

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        """Let the loop call `callback` after all earlier posts, unless the thread has ended."""
        with suppress(RuntimeError):
            self._inbox.post(callback, *arguments)

    def start(self, make: Callable[[], Coroutine[Any, Any, T]]) -> tuple[Call[T], Latch[T]]:
        """Start a coroutine on the loop, and return the call and its outcome."""
        outcome: Latch[T] = Latch()
        call = Call(self._loop, make, None, outcome)
        self._begin(call)
        return call, outcome

    def run(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
        *,
        accept: Callable[[T], None] | None = None,
        to_end: bool = False,
    ) -> T:
        """Run a coroutine on the loop, and block this thread until the result exists.

        Args:
            make: Makes the coroutine, on the loop's thread.
            undo: Makes the coroutine that undoes a result. The undo runs if a signal handler raised
                an exception before this call could return the result, or if `accept` raised one.
            accept: Called in this thread with the result, which it may refuse by an exception.
            to_end: True to run the coroutine to its end even if a signal handler raises an
                exception, or if this call refuses greenlets.

        Raises:
            RedlockClosed: The thread has ended.
            RedlockError: The call comes from the loop's own thread, which would wait for itself.

        Safety: an exception of a signal handler, such as KeyboardInterrupt, cancels the coroutine,
        unless `to_end` is True. If the coroutine has already returned a result, the result is
        undone. The exception is raised when the coroutine or the undo has ended, or when
        `UNDONE_WITHIN` seconds have passed.
        """
        outcome: Latch[T] = Latch()
        call = Call(self._loop, make, undo, outcome)
        try:
            # A signal handler may raise an exception at any line. So begin the call inside the
            # `try`, whose `except` undoes the call. No line runs after the `return`.
            self.refuse_here()
            self._begin(call)
            result = outcome.result()
            if accept is not None:
                accept(result)
            self.pending.discard(call)
            return result
        except BaseException as error:
            # A thread that has closed its loop has ended all leases, so nothing is left to undo.
            if outcome.error is not error and not self.here and not self.dead:
                over: Latch[Any] = outcome if to_end else Latch()
                if to_end:
                    # The exception may have come before the call had begun, so begin it here. The
                    # call may be a release. Without it, the engine would renew the lease for ever.
                    self.post(call.begin)
                else:
                    self.post(call.abandon, over)
                # A greenlet must not wait; see `refuse_greenlets`.
                if not isinstance(error, ConfigurationError):
                    over.wait(UNDONE_WITHIN)
            self.pending.discard(call)
            # The call and the latch refer to the error, whose traceback refers to this frame.
            del call, outcome
            raise

    def refuse_here(self) -> None:
        """Refuse a blocking call that comes from the loop's own thread.

        Raises:
            RedlockError: The call would wait for itself.
            ConfigurationError: As in `refuse_greenlets`.
        """
        refuse_greenlets()
        if self.here:
            raise RedlockError(
                "the call comes from the thread of the locks' event loop, for example from a sink,"
                " and would wait for itself; start a thread for calls that wait"
            )

    async def call(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
    ) -> T:
        """Run a coroutine on the loop, for a task of another loop.

        Args:
            make: Makes the coroutine, on the loop's thread.
            undo: Makes the coroutine that undoes a result. The undo runs if the task was cancelled
                before it received the result.

        Raises:
            RedlockClosed: The thread has ended.

        Safety: a cancellation cancels the coroutine, or undoes its result. Every later call of the
        task begins after the cancellation or the undo has begun.
        """
        refuse_greenlets()
        if self.here:
            return await make()
        delivery: Delivery[T] = Delivery(home())
        call = Call(self._loop, make, undo, delivery, asyncio.current_task())
        try:
            self._begin(call)
            return await delivery.future
        except BaseException as error:
            if not delivery.raised(error):
                self.post(call.abandon)
                delivery.forget()
            raise
        finally:
            self.pending.discard(call)
            del call, delivery

    async def finish(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop to its end, for a task of another loop.

        Args:
            make: Makes the coroutine, which must end in bounded time.

        Raises:
            RedlockClosed: The thread has ended.

        Safety: a cancellation is raised after the end of the coroutine.
        """
        if self.here:
            return await make()
        outcome: Latch[T] = Latch()
        call = Call(self._loop, make, None, outcome, asyncio.current_task())
        self._begin(call)
        try:
            refuse_greenlets()
            await outcome.outlast()
            return outcome.result()
        finally:
            self.pending.discard(call)
            del call, outcome

    def closed(self) -> RedlockClosed:
        """Return the error of a call that the thread cannot serve."""
        return RedlockClosed(f"this Redlock serves no calls: {self.dead or _CLOSED}")

    def end_after(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Let the loop run a last coroutine. Then the loop and its thread end.

        Only the first call has an effect. If the thread has already ended, nothing happens.
        """
        self.post(self._begin_end, last)

    def disown(self) -> None:
        """Mark the thread as ended in a forked child, where the thread does not exist.

        The loop is not closed, because parent and child share its selector, and the close would
        unregister the parent's sockets. A thread that forked during a wait gets an error instead.
        """
        self.dead = "it belongs to the process before a fork"
        for outcome in (*(call.outcome for call in self.pending), self.ended):
            outcome.set_exception(self.closed())

    def _begin_end(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        # If `dead` is set, the loop runs only to finish `last_act`, so do not begin `last`.
        if self._last is None and not self.dead:
            self._last = self._loop.create_task(last())
            self._last.add_done_callback(self._end)

    def _end(self, last: asyncio.Task[object]) -> None:
        # Read the exception that `last` has already reported. Otherwise asyncio would log it.
        _ = last.cancelled() or last.exception()
        if not self.dead:
            self.dead = _CLOSED
            # A task of this loop may wait for `last`. It must run once more before the loop stops.
            self.post(self._loop.stop)

    def _begin(self, call: Call[Any]) -> None:
        """Begin a call. If the thread has ended, set an error as the outcome."""
        self.pending.add(call)
        with suppress(RuntimeError):
            # In a forked child the loop exists, but no thread runs it.
            if not self.dead:
                self._inbox.post(call.begin)
            # The thread may have ended meanwhile, and failed all pending calls except this one.
            if not self.dead:
                return
        call.outcome.set_exception(self.closed())

    def _serve(self) -> None:
        why = ""
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_forever()
        except BaseException as error:
            # Nothing else reports the error of a daemon thread, so each call raises it.
            why = f"its thread ended by {type(error).__name__}: {error}"
        finally:
            try:
                self._wind_up(why)
            finally:
                # Other threads wait for `ended`, so set it even after an error.
                self.ended.set_result(None)
                _running.discard(self)

    def _wind_up(self, why: str) -> None:
        """Fail the pending calls, run `last_act` after an unexpected end, and close the loop."""
        self.dead = self.dead or why or "its thread ended"
        for call in list(self.pending):
            call.outcome.set_exception(self.closed())
        if self.last_act is not None and self.dead != _CLOSED:
            run_to_end(self._loop, self.last_act())
        # Python warns of each task that is left on a closed loop.
        if tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            run_to_end(self._loop, asyncio.wait(tasks, timeout=UNDONE_WITHIN))
        self._loop.close()


def disown_all() -> None:
    """Mark the parent's threads as ended in a forked child."""
    for thread in list(_running):
        thread.disown()
