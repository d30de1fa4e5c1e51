"""A result that one thread sets, and for which other threads and tasks wait."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from aioredlock_ng._outlasting import outlast_cancellation
from aioredlock_ng._threaded.mailbox import home

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Latch"]

T = TypeVar("T")


class Latch(Generic[T]):
    """A result or an exception that is set once. Any number of threads and tasks may wait for it.

    `concurrent.futures.Future` and `threading.Event` are unsuitable, because they take a lock in
    Python code. If a signal handler raised an exception there, the lock would stay taken, and the
    engine's thread would wait for the lock for ever. Here each waiting thread has a lock of its
    own.
    """

    __slots__ = ("_outcome", "_turn", "_wakers")

    def __init__(self) -> None:
        # Result and exception are stored as one tuple, so that no thread sees only one of them.
        self._outcome: tuple[T | None, BaseException | None] | None = None
        # Each setter tries to remove this item, and only the first succeeds.
        self._turn = [None]
        self._wakers: list[Callable[[], object]] = []

    def done(self) -> bool:
        return self._outcome is not None

    @property
    def error(self) -> BaseException | None:
        """The exception; None if there is a result, or if the latch is not set yet."""
        return None if self._outcome is None else self._outcome[1]

    def set_result(self, result: T, /) -> None:
        self._set(result, None)

    def set_exception(self, exception: BaseException | None, /) -> None:
        self._set(None, exception)

    def wait(self, within: float | None = None) -> bool:
        """Block the thread until the latch is set, for at most `within` seconds.

        Returns:
            True if the latch is set.
        """
        lock = threading.Lock()
        lock.acquire()
        # The setter first stores the outcome, and then calls the wakers. So either this thread sees
        # the outcome, or the setter sees the waker.
        self._wakers.append(lock.release)
        if self._outcome is None:
            lock.acquire(timeout=-1 if within is None else within)
        return self._outcome is not None

    def result(self) -> T:
        """Block the thread until the latch is set, and return the result or raise the exception."""
        if self._outcome is None:
            self.wait()
        assert self._outcome is not None
        result, error = self._outcome
        if error is None:
            return cast("T", result)
        try:
            raise error
        finally:
            # The traceback of the exception refers to this frame. A reference from the frame to the
            # exception, also through the latch, would form a reference cycle.
            del error, self

    def arrival(self) -> asyncio.Future[None]:
        """Return a future of the running loop that is resolved when the latch is set."""
        mailbox = home()
        arrived: asyncio.Future[None] = mailbox.loop.create_future()

        def arrive() -> None:
            if not arrived.done():
                arrived.set_result(None)

        def wake() -> None:
            # If the loop is closed, no task waits for the future.
            with suppress(RuntimeError):
                mailbox.post(arrive)

        self._wakers.append(wake)
        if self._outcome is not None:
            arrive()
        return arrived

    async def outlast(self) -> None:
        """Wait until the latch is set. The latch must be set in bounded time.

        Safety: a cancellation is raised only after the latch is set.
        """
        try:
            await self.arrival()
        except asyncio.CancelledError:
            await outlast_cancellation(lambda: self._outcome is None, self.arrival)
            raise

    def _set(self, result: T | None, error: BaseException | None) -> None:
        # `pop` on an empty list raises an IndexError, which ends this method. `_turn` is empty for
        # every setter except the first. `_wakers` is empty when all waiters have been woken.
        with suppress(IndexError):
            self._turn.pop()
            self._outcome = (result, error)
            while True:
                self._wakers.pop()()
