"""An event loop on which a test can interrupt a coroutine before each callback.

The points at which a task waits are not enough. Between the cancellation of a task and its next
step, other callbacks run, for example for answers of nodes. So each callback of the loop is a
possible instant of the interruption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from contextvars import Context

__all__ = ["SteppedLoop"]

_TICK = 1e-5
"""Seconds that each iteration of the loop takes.

An anyio scope that cancels again and again keeps the loop busy. If iterations took no time, the
virtual clock would stand still meanwhile.
"""


class SteppedLoop(VirtualLoop):
    """Counts its callbacks after a call of `watch`, and runs a hook before each of them.

    Attributes:
        troubles: Exceptions of callbacks, and exceptions that were never retrieved.
    """

    def __init__(self) -> None:
        self._hook: Callable[[int], None] | None = None
        self._steps = 0
        super().__init__()
        self.troubles: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.troubles.append(context))

    def _run_once(self) -> None:
        self.advance(_TICK)
        super()._run_once()  # type: ignore[misc]

    def watch(self, hook: Callable[[int], None] | None) -> None:
        """Call `hook(n)` before the n-th callback from now on. None ends these calls."""
        self._hook, self._steps = hook, 0

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(self._step, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon_threadsafe(self._step, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self._step, callback, *args, context=context)

    def _step(self, callback: Callable[..., Any], *args: Any) -> None:
        if self._hook is not None:
            self._steps += 1
            self._hook(self._steps)
        callback(*args)
