"""A wait that goes on although its task is cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["outlast_cancellation"]


async def outlast_cancellation(
    unfinished: Callable[[], bool], wait: Callable[[], Awaitable[object]]
) -> None:
    """Wait until some work is finished, even if the task is cancelled several times meanwhile.

    Args:
        unfinished: Returns True while the work is unfinished. The result must become False in
            bounded time.
        wait: Waits until the result of `unfinished` may have changed.
    """
    # anyio repeats the cancellation of a scope at each await, so the shield keeps this cancellation
    # out. A call of `task.cancel` passes the shield and interrupts the wait, so the loop waits
    # again.
    with anyio.CancelScope(shield=True):
        while unfinished():
            try:
                await wait()
            except asyncio.CancelledError:
                continue
