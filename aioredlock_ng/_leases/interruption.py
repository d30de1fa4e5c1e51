"""Cancel the task of a body in the same way as `asyncio.timeout`."""

from __future__ import annotations

import asyncio

__all__ = ["Interruption"]


class Interruption:
    """The cancellation of a task inside a body, and the end of this body.

    Attributes:
        task: The task that entered the body.
    """

    __slots__ = ("_cancelling", "_cancels", "_over", "task")

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task = task
        self._cancelling = task.cancelling()
        self._cancels = 0
        self._over = False

    def cancel(self) -> None:
        """Cancel the task, unless the task itself is the caller.

        The method that the task has called raises an error, so the task needs no cancellation.
        """
        if self.task is asyncio.current_task():
            return
        if getattr(self.task.get_coro(), "cr_running", False):
            # The caller is an eager task, which the body has just started. Before Python 3.13, a
            # cancellation of a running task could not be taken back.
            asyncio.get_running_loop().call_soon(self._cancel)
        else:
            self._cancel()

    def _cancel(self) -> None:
        if not self._over:
            self._cancels += self.task.cancel()

    def take_back(self) -> bool:
        """Undo the cancellations, because the body has ended.

        Returns:
            True if only this object has cancelled the task, and the same task is the caller.
        """
        self._over = True
        cancels, self._cancels = self._cancels, 0
        for _ in range(cancels):
            self.task.uncancel()
        alone = self.task.cancelling() <= self._cancelling
        return cancels > 0 and alone and self.task is asyncio.current_task()

    def own_exception(self, exc: BaseException | None) -> BaseException | None:
        """Return the exception of the body; None if the body ended without one of its own.

        With `GeneratorExit`, Python closes the generator that contains the body. No caller sees
        this exception, so an error in its note would be lost. But if other code has cancelled the
        reader of the generator, the reader sees its cancellation, which has priority.
        """
        closed = isinstance(exc, GeneratorExit) and self.task.cancelling() <= self._cancelling
        return None if closed else exc
