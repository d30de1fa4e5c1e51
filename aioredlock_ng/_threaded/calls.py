"""One coroutine that runs on the engine's loop, for a caller in another thread."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from aioredlock_ng._engine.caller import callers
from aioredlock_ng.errors import RedlockClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioredlock_ng._threaded.latch import Latch
    from aioredlock_ng._threaded.mailbox import Mailbox

__all__ = ["Call", "Delivery", "Outcome", "run_to_end"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Outcome(Protocol[T_contra]):
    """The receiver of the result of a call: a `Latch` or a `Delivery`."""

    def done(self) -> bool:
        """Return True once a result or an exception was set."""

    def set_result(self, result: T_contra, /) -> None:
        """Give the result to the caller, or raise `RuntimeError` if no caller can receive it."""

    def set_exception(self, exception: BaseException | None, /) -> None:
        """Give an exception to the caller, in place of a result."""


class Delivery(Generic[T]):
    """The receiver of a result that goes to a task of another event loop.

    Args:
        home: The mailbox of that loop.

    Attributes:
        future: The future that the task awaits. It belongs to the loop of the task.
    """

    def __init__(self, home: Mailbox) -> None:
        self._home = home
        self._sent = False
        self.future: asyncio.Future[T] = home.loop.create_future()

    @property
    def is_stranded(self) -> bool:
        """True if the task's loop was closed, so the task never receives the result."""
        return self._home.closed

    def done(self) -> bool:
        return self._sent

    def set_result(self, result: T, /) -> None:
        """Send the result.

        Raises:
            RuntimeError: The task's loop is closed. No task receives the result.
        """
        self._send(result, None)

    def set_exception(self, exception: BaseException | None, /) -> None:
        """Send an exception, unless the task's loop is closed."""
        with suppress(RuntimeError):
            self._send(None, exception)

    def raised(self, error: BaseException) -> bool:
        """Return True if the future has raised this error."""
        future = self.future
        return future.done() and not future.cancelled() and future.exception() is error

    def forget(self) -> None:
        """Cancel the future, because its task does not wait any more."""
        # The garbage collector may end the task after the loop was closed.
        with suppress(RuntimeError):
            self.future.cancel()

    def _send(self, result: T | None, error: BaseException | None) -> None:
        if not self._sent:
            self._sent = True
            self._home.post(self._arrive, result, error)

    def _arrive(self, result: T, error: BaseException | None) -> None:
        if self.future.done():
            # The task was cancelled, and has abandoned the call.
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class Call(Generic[T]):
    """One coroutine, whose caller waits for the result in another thread.

    The caller must create this object, because the coroutine runs in a copy of the caller's
    context.

    Args:
        loop: The engine's loop.
        make: Makes the coroutine, on that loop.
        undo: Makes the coroutine that undoes a result which no caller received. None: there is
            nothing to undo.
        outcome: Receives the result or the error of the coroutine.
        caller: The task that waits; None if a thread waits.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make: Callable[[], Coroutine[Any, Any, T]],
        undo: Callable[[T], Coroutine[Any, Any, object]] | None,
        outcome: Outcome[T],
        caller: asyncio.Task[Any] | None = None,
    ) -> None:
        self._loop = loop
        self._make = make
        self._undo = undo
        self._caller = caller
        self._context = copy_context()
        self._task: asyncio.Task[T] | None = None
        self._abandoned = False
        self._over: Latch[None] | None = None
        self.outcome = outcome

    def begin(self) -> None:
        """Start the coroutine, unless it was started before. The engine's loop runs this method."""
        if self._task is not None:
            return
        try:
            coroutine = self._make()
        except Exception as error:
            # Wrong arguments raise a TypeError before there is a coroutine. Without an outcome, the
            # caller would wait for ever.
            self.outcome.set_exception(error)
            return
        task = self._task = self._loop.create_task(coroutine, context=self._context)
        if self._caller is not None:
            callers[task] = self._caller
        task.add_done_callback(self._done)

    def abandon(self, over: Latch[None] | None = None) -> None:
        """Cancel the coroutine, or undo its result. The engine's loop runs this method.

        Args:
            over: A latch that is set when the coroutine and its undo have ended.
        """
        self._abandoned, self._over = True, over
        task = self._task
        if task is None:
            self._set_over()
        elif not task.done():
            task.cancel()
        elif self.outcome.done():
            self._give_back(task)

    def _done(self, task: asyncio.Task[T]) -> None:
        callers.pop(task, None)
        if self._abandoned:
            self._give_back(task)
        elif task.cancelled():
            self.outcome.set_exception(RedlockClosed("the call was cancelled on its loop"))
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            try:
                self.outcome.set_result(task.result())
            except RuntimeError:
                self._give_back(task)

    def _give_back(self, task: asyncio.Task[T]) -> None:
        # Read the exception even if it is not needed. Otherwise asyncio would log it as unread.
        if task.cancelled() or task.exception() is not None or self._undo is None:
            # Other threads may still wait for this outcome, for example for the opening of the
            # manager. So set an error.
            self.outcome.set_exception(RedlockClosed("the call was cancelled on its loop"))
            self._set_over()
            return
        undoing = self._loop.create_task(self._undo(task.result()), context=self._context)
        undoing.add_done_callback(lambda _: self._set_over())

    def _set_over(self) -> None:
        if self._over is not None:
            self._over.set_result(None)


def run_to_end(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine on a stopped loop to its end, even after SystemExit or KeyboardInterrupt."""
    task = loop.create_task(work)
    with suppress(Exception, asyncio.CancelledError):
        while not task.done():
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_until_complete(task)
