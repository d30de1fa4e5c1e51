"""Run an event loop in a daemon thread, and call coroutines on it from other threads."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from aioredlock_ng.errors import ConfigurationError, RedlockClosed, RedlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["EngineThread", "refuse_greenlets"]

T = TypeVar("T")

UNDONE_WITHIN: Final = 1.0
"""Longest wait in seconds of an interrupted call for its undo, and of a closing loop for its tasks.
The undo is a release, which waits for the nodes for one node timeout at most."""

_numbers = count(1)

# anyio imports its part for asyncio at the first use, which takes a tenth of a second. Each forked
# child would repeat that.
with suppress(ImportError):
    import_module("anyio._backends._asyncio")


class EngineThread:
    """One event loop in a daemon thread.

    Attributes:
        dead: The reason why the thread serves no calls any more. "" while it serves calls.
        orphans: The leases that were held when the thread ended unexpectedly.
        last_act: Makes the coroutine that runs after an unexpected end, before the loop is closed.
            It sets `orphans`.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pending: set[Future[Any]] = set()
        self._at_death: set[Callable[[], object]] = set()
        self._thread = threading.Thread(
            target=self._serve, name=f"aioredlock_ng:{next(_numbers)}", daemon=True
        )
        self.dead = ""
        self.orphans: frozenset[object] = frozenset()
        self.last_act: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._thread.start()

    def run(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
    ) -> T:
        """Run a coroutine on the loop, and wait for its result.

        Args:
            make: Makes the coroutine, on the loop's thread.
            undo: Makes the coroutine that undoes a result which no caller received, because an
                exception of a signal handler came first.

        Raises:
            RedlockClosed: The thread has ended.
            RedlockError: The call comes from the loop's own thread, which would wait for itself.

        Safety: an exception of a signal handler, such as KeyboardInterrupt, cancels the coroutine.
        A result that exists by then is undone before the exception is raised.
        """
        if threading.get_ident() == self._thread.ident:
            raise RedlockError(
                "the call comes from the thread of the locks' event loop, for example from a sink,"
                " and would wait for itself; start a thread for calls that wait"
            )
        call = _Call(self._loop, make, undo)
        self._pending.add(call.outcome)
        try:
            try:
                self._loop.call_soon_threadsafe(call.begin)
            except RuntimeError:
                raise self.closed() from None
            if self.dead:
                # The ending thread may have failed all pending calls just before this call was
                # added.
                raise self.closed()
            return call.outcome.result()
        except BaseException as error:
            if not call.outcome.done() or call.outcome.exception() is not error:
                self._abandon(call)
            raise
        finally:
            self._pending.discard(call.outcome)

    def at_death(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` when the thread ends. Return a function that removes the callback."""
        self._at_death.add(callback)
        return lambda: self._at_death.discard(callback)

    def closed(self) -> RedlockClosed:
        """Return the error of a call that the thread cannot serve."""
        return RedlockClosed(f"this Redlock serves no calls: {self.dead or 'it is closed'}")

    def stop(self) -> None:
        """End the loop and wait for the thread. Call this only when no task is left on the loop."""
        self.dead = self.dead or "it is closed"
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def disown(self) -> None:
        """Mark the thread as ended in a forked child, which lacks it.

        The loop is not closed. The parent shares its selector, and closing would unregister the
        parent's sockets.
        """
        self.dead = "it belongs to the process before a fork"

    def _serve(self) -> None:
        why = ""
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_forever()
        except BaseException as error:
            # Each caller gets the error that ended the loop. A daemon thread has no other place to
            # report it.
            why = f"its thread ended by {type(error).__name__}: {error}"
        finally:
            self.dead = self.dead or why or "its thread ended"
            for outcome in list(self._pending):
                # A caller that was interrupted at this moment has its own exception.
                with suppress(Exception):
                    outcome.set_exception(self.closed())
            if why and self.last_act is not None:
                with suppress(Exception, SystemExit):
                    self._loop.run_until_complete(self.last_act())
            for callback in list(self._at_death):
                callback()
            with suppress(Exception):
                self._end_tasks()
            self._loop.close()

    def _end_tasks(self) -> None:
        """Cancel the remaining tasks. Python reports a task that is left on a closed loop."""
        if tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=UNDONE_WITHIN))

    def _abandon(self, call: _Call[Any]) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call.abandon)
            call.over.wait(UNDONE_WITHIN)


class _Call(Generic[T]):
    """One coroutine that a thread waits for.

    Attributes:
        outcome: Resolved with the result or the error of the coroutine.
        over: Set once an abandoned call has ended, its undo included.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make: Callable[[], Coroutine[Any, Any, T]],
        undo: Callable[[T], Coroutine[Any, Any, object]] | None,
    ) -> None:
        self._loop = loop
        self._make = make
        self._undo = undo
        self._task: asyncio.Task[T] | None = None
        self._abandoned = False
        self.outcome: Future[T] = Future()
        self.over = threading.Event()

    def begin(self) -> None:
        """Start the coroutine. This runs on the loop."""
        self._task = self._loop.create_task(self._make())
        self._task.add_done_callback(self._done)

    def abandon(self) -> None:
        """Cancel the coroutine, or undo its result. This runs on the loop."""
        self._abandoned = True
        task = self._task
        if task is None:
            self.over.set()
        elif not task.done():
            task.cancel()
        elif self.outcome.done():
            self._give_back(task)

    def _done(self, task: asyncio.Task[T]) -> None:
        if self._abandoned:
            self._give_back(task)
            return
        # An outcome that the ending thread has set already is not set again.
        with suppress(Exception):
            if task.cancelled():
                self.outcome.set_exception(RedlockClosed("the call was cancelled on its loop"))
            elif (error := task.exception()) is not None:
                self.outcome.set_exception(error)
            else:
                self.outcome.set_result(task.result())

    def _give_back(self, task: asyncio.Task[T]) -> None:
        if self._undo is None or task.cancelled() or task.exception() is not None:
            self.over.set()
            return
        undoing = self._loop.create_task(self._undo(task.result()))
        undoing.add_done_callback(lambda _: self.over.set())


def refuse_greenlets() -> None:
    """Raise an error if gevent or eventlet has replaced threads by greenlets.

    Raises:
        ConfigurationError: gevent or eventlet has replaced `threading`. The event loop would run as
            a greenlet in the thread of its callers, and block all of them.
    """
    for name, module, question, threads in (
        ("gevent", "gevent.monkey", "is_module_patched", "threading"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched", "thread"),
    ):
        loaded = sys.modules.get(module)
        if loaded is not None and getattr(loaded, question)(threads):
            raise ConfigurationError(
                f"{name} has replaced threads by greenlets, which aioredlock_ng.sync cannot use;"
                f" use it in a process without {name}, or leave `threading` unpatched"
            )
