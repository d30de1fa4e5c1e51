"""Runs a coroutine again and again, each time interrupted one loop callback later; it knows nothing
of locks.

Suspensions of one task are too coarse: between the cancellation of a task and its next step other
callbacks run, among them answers of nodes. So every callback of the loop is an instant at which the
interruption strikes.
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
"""Seconds that each round of the loop takes.

An anyio scope that cancels again and again keeps the loop busy. Time must pass nevertheless.
"""


class SteppedLoop(VirtualLoop):
    """Counts its callbacks once `watch` was called, and runs a hook before each.

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
        """Call `hook(n)` before the n-th callback from now on; None: no longer."""
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
