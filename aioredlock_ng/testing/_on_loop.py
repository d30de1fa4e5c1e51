"""Run a function of a test on an event loop, from another thread."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["run_on_loop"]


def run_on_loop(loop: asyncio.AbstractEventLoop, act: Callable[[], object], within: float) -> None:
    """Run `act` on the event loop of another thread, and return when it has ended.

    Args:
        loop: The event loop. It must not run in the calling thread.
        act: The function. Its exception is raised here.
        within: Longest wait in seconds.

    Raises:
        TimeoutError: The function did not end within this time. If it has not begun, it will not
            run any more.
    """
    done: Future[None] = Future()

    def run() -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            act()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    loop.call_soon_threadsafe(run)
    try:
        done.result(within)
    finally:
        done.cancel()
