"""End a command in an orderly way when a signal asks it to stop."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, TypeVar

from aioredlock_ng.cli.signals import ended_by

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import FrameType, TracebackType
    from typing import Self

__all__ = ["Interruption"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


class Interruption:
    """Make SIGINT, SIGTERM and SIGHUP unwind the stack, so that every `with` block cleans up.

    A signal cancels the coroutine that `run` executes. Without a running coroutine, the signal
    raises `SystemExit` immediately. The exit status is 128 plus the signal's number, as in shells.
    A signal that was ignored from the start (nohup, a background job of a script) stays ignored.
    """

    def __init__(self) -> None:
        self._former: dict[signal.Signals, object] = {}
        self._number: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine in a new event loop.

        Raises:
            SystemExit: A signal came, and the coroutine has cleaned up.
        """
        try:
            return asyncio.run(self._supervised(work))
        except asyncio.CancelledError:
            if self._number is None:
                raise
            raise ended_by(self._number) from None

    async def _supervised(self, work: Coroutine[object, object, T]) -> T:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            return await work
        finally:
            self._task = None

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        if self._task is None or self._loop is None:
            raise ended_by(number)
        self._loop.call_soon_threadsafe(self._task.cancel)

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._former[number] = signal.signal(number, self._stop)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, former in self._former.items():
            handler = former if former is not None else signal.SIG_DFL
            signal.signal(number, handler)  # type: ignore[arg-type]
