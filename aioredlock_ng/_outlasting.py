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

    Raises:
        CancelledError: The last cancellation during the wait, raised when the work is finished. If
            the caller raised an earlier one of an anyio scope instead, versions of anyio before
            4.16 would swallow it, and the task would never see the last one.
    """
    last: asyncio.CancelledError | None = None
    # anyio repeats the cancellation of a scope at each await, so the shield keeps this cancellation
    # out. A call of `task.cancel` passes the shield and interrupts the wait, so the loop waits
    # again.
    with anyio.CancelScope(shield=True):
        while unfinished():
            try:
                await wait()
            except asyncio.CancelledError as error:
                last = error
    if last is not None:
        try:
            raise last
        finally:
            # Some versions of anyio look for the cancellation of their scope in the context, too.
            last.__context__ = None
            # The error's traceback refers to this frame, so both would form a cycle.
            del last
