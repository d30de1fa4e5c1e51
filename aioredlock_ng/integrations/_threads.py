"""Track the threads that work under a request's lock.

If a task is cancelled while it waits for a thread, the wait ends at once, but the thread continues.
So the lock must not be released before the thread ends. The lock is held until then, or is left to
expire.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from aioredlock_ng import LockReleased, RedlockClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from aioredlock_ng import Lease

__all__ = ["Work", "outlasting", "watched"]

_NOT_BEGUN = ("checkpoint", "acquire_on_behalf_of")
"""Functions of anyio in which a task waits before its thread begins."""

_WAITS = (("anyio.to_thread", "run_sync"), ("asyncio.threads", "to_thread"))
"""Module and name of each function in which a task waits for a thread."""

_current: ContextVar[Work | None] = ContextVar("aioredlock_ng request", default=None)
"""The `Work` of the current request.

A worker thread runs in a copy of the waiting task's context, so the thread sees this variable.
"""


class Work:
    """A counter of the threads in which an endpoint works for one request.

    A `Work` must be created on the event loop that serves the request.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._mutex = threading.Lock()
        self._over = False
        self._running = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def over(self) -> bool:
        return self._over

    def enter(self) -> None:
        """Let this `Work` count the threads that are started in the current context."""
        _current.set(self)

    def leave(self) -> bool:
        """Mark the request as ended, so that no further thread begins.

        Return True if a thread still works.
        """
        if _current.get() is self:
            _current.set(None)
        with self._mutex:
            self._over = True
            return self._running > 0

    def still_used(self, then: Callable[[], None]) -> bool:
        """Mark the request as ended, and return True if a thread still works.

        If the result is True, the callback `then` is called on the event loop after the end of the
        last thread.
        """
        if not self.leave():
            return False
        # When the thread ends, it queues `_ended` on this event loop. So `_ended` runs after this
        # method has returned, and calls `then`.
        self._waiting.append(then)
        return True

    def run(self, call: Callable[[], Any]) -> Any:
        """Run the endpoint in its thread.

        Raises:
            LockReleased: The request and its lock ended before the thread began.
        """
        with self._mutex:
            # If a request is cancelled after anyio's last check, its thread still starts. The
            # endpoint must not run then, because the lock is released.
            if self._over:
                raise LockReleased("the request was over before its endpoint began in a thread")
            self._running += 1
        try:
            return call()
        finally:
            with self._mutex:
                self._running -= 1
            with suppress(RuntimeError):  # if the event loop is closed, no task waits
                self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        with self._mutex:
            if self._running:
                return
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()


def watched(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the endpoint so that `Work.run` runs it.

    An endpoint that is wrapped already is returned unchanged.
    """
    if getattr(call, "_is_watched", False):
        return call

    def watching(*arguments: Any, **values: Any) -> Any:
        work = _current.get()
        if work is None:
            return call(*arguments, **values)
        return work.run(functools.partial(call, *arguments, **values))

    functools.update_wrapper(watching, call)
    watching._is_watched = True  # type: ignore[attr-defined]
    return watching


@contextmanager
def outlasting(lease: Lease, work: Work | None = None) -> Iterator[None]:
    """Abandon the lease if the cancelled body left a thread running. The keys then expire.

    If `work` counts that thread, the lease is not abandoned. `Work.still_used` then delays the
    release until the thread ends.
    """
    try:
        yield
    except BaseException as error:
        if (work is None or not work.leave()) and _left_a_thread(error):
            with suppress(RedlockClosed):
                lease.abandon()
        raise


def _left_a_thread(error: BaseException) -> bool:
    """Return True if the tracebacks show a cancelled wait for a thread, which may still run."""
    cancellations = (told for told in _all_of(error) if isinstance(told, asyncio.CancelledError))
    return any(_waited(told.__traceback__) for told in cancellations)


def _all_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its causes and the errors of its groups.

    A cancellation can be the cause of a `TimeoutError`.
    """
    seen: set[int] = set()
    found: list[BaseException | None] = [error]
    while found:
        if (one := found.pop()) is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            found += [one.__cause__, one.__context__]
            if isinstance(one, BaseExceptionGroup):
                found += one.exceptions


def _waited(traceback: TracebackType | None) -> bool:
    waits = False
    while traceback is not None:
        frame = traceback.tb_frame
        name = frame.f_code.co_name
        if (frame.f_globals.get("__name__"), name) in _WAITS:
            waits = True
        elif waits and name in _NOT_BEGUN:
            waits = False
        traceback = traceback.tb_next
    return waits
