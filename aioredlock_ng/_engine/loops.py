"""The running event loop, which must be a loop of asyncio."""

from __future__ import annotations

import asyncio

from aioredlock_ng.errors import RedlockClosed

__all__ = ["running_loop"]


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop of asyncio.

    Raises:
        RedlockClosed: Raised if no loop of asyncio runs in this thread, for example in a trio
            program.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RedlockClosed(
            "aioredlock_ng needs asyncio, and no asyncio event loop runs here; in a trio program"
            ' use trio-asyncio, or run the program by anyio.run(main, backend="asyncio")'
        ) from None
