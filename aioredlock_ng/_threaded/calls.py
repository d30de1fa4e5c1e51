"""One coroutine that runs on the engine's loop, for a caller in another thread."""

from __future__ import annotations

import threading
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from aioredlock_ng._engine.acting import callers
from aioredlock_ng.errors import RedlockClosed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    from aioredlock_ng._threaded.mailbox import Mailbox

__all__ = ["Call", "Delivery", "Outcome"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Outcome(Protocol[T_contra]):
    """The place to which the result of a call goes. `concurrent.futures.Future` is one."""

    def done(self) -> bool:
        """Return True once a result or an exception was set."""

    def set_result(self, result: T_contra, /) -> None:
        """Give the result to the caller."""

    def set_exception(self, exception: BaseException | None, /) -> None:
        """Give an exception to the caller."""


class Delivery(Generic[T]):
    """An outcome for a task of another event loop.

    Args:
        home: The way to that loop.

    Attributes:
        future: Belongs to that loop. The task waits for it.
        arrived: True once the outcome has reached that loop.
        late: Called when the outcome reaches that loop.
    """

    def __init__(self, home: Mailbox) -> None:
        self._home = home
        self._sent = False
        self.future: asyncio.Future[T] = home.loop.create_future()
        self.arrived = False
        self.late: Callable[[], object] | None = None

    def done(self) -> bool:
        """Return True once a result or an exception was sent."""
        return self._sent

    def set_result(self, result: T, /) -> None:
        """Send the result.

        Raises:
            RuntimeError: The task's loop is closed. No task receives the result.
        """
        self._send(result, None)

    def set_exception(self, exception: BaseException | None, /) -> None:
        """Send an exception."""
        with suppress(RuntimeError):
            self._send(None, exception)

    def _send(self, result: T | None, error: BaseException | None) -> None:
        if not self._sent:
            self._sent = True
            self._home.post(self._arrive, result, error)

    def _arrive(self, result: T, error: BaseException | None) -> None:
        self.arrived = True
        if self.future.done():
            # The task was cancelled, and has abandoned the call.
            if self.late is not None:
                self.late()
        elif error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class Call(Generic[T]):
    """One coroutine that another thread waits for.

    It must be created by the caller, because the coroutine runs in a copy of the caller's context.

    Args:
        loop: The engine's loop.
        make: Makes the coroutine, on that loop.
        undo: Makes the coroutine that undoes a result which no caller received. None: nothing is to
            be undone.
        outcome: Gets the result or the error of the coroutine.
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
        self.outcome = outcome
        # Set once an abandoned call has ended, its undo included. A task does not wait for it, and
        # an event would be a tenth of the cost of its call.
        self._over = threading.Event() if caller is None else None

    def await_over(self, within: float) -> None:
        """Block the thread until an abandoned call has ended, for so many seconds at most."""
        if self._over is not None:
            self._over.wait(within)

    def begin(self) -> None:
        """Start the coroutine. This runs on the loop."""
        task = self._task = self._loop.create_task(self._make(), context=self._context)
        if self._caller is not None:
            callers[task] = self._caller
        task.add_done_callback(self._done)

    def abandon(self) -> None:
        """Cancel the coroutine, or undo its result. This runs on the loop."""
        self._abandoned = True
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
            self._fail(RedlockClosed("the call was cancelled on its loop"))
        elif (error := task.exception()) is not None:
            self._fail(error)
        else:
            try:
                self.outcome.set_result(task.result())
            except RuntimeError:
                self._give_back(task)
            except Exception:  # noqa: S110 -- the ending thread has set the outcome already
                pass

    def _fail(self, error: BaseException) -> None:
        # An outcome that the ending thread has set already is not set again.
        with suppress(Exception):
            self.outcome.set_exception(error)

    def _give_back(self, task: asyncio.Task[T]) -> None:
        # The exception is read in any case. asyncio reports an exception that nobody has read.
        if task.cancelled() or task.exception() is not None or self._undo is None:
            # Other threads may wait for the same outcome, as for that of an opening.
            self._fail(RedlockClosed("the call was cancelled on its loop"))
            self._set_over()
            return
        undoing = self._loop.create_task(self._undo(task.result()), context=self._context)
        undoing.add_done_callback(lambda _: self._set_over())

    def _set_over(self) -> None:
        if self._over is not None:
            self._over.set()
