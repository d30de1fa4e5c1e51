"""Waits for what is to happen; never for a length of time in the hope that it has."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["eventually"]

T = TypeVar("T")


@overload
async def eventually(
    condition: Callable[[], Awaitable[T]], within: float = ..., every: float = ...
) -> T: ...
@overload
async def eventually(condition: Callable[[], T], within: float = ..., every: float = ...) -> T: ...
async def eventually(
    condition: Callable[[], Any], within: float = 30.0, every: float = 0.005
) -> Any:
    """Ask `condition` (plain or async) until its answer is true, and return that; fail after
    `within` seconds.

    Patience costs nothing where it comes true, and reconnecting alone may take five seconds on a
    busy machine. A key that is to be deleted must not expire sooner: give it a longer ttl.

    Bounded by the real clock too, so that it ends on a virtual loop whose time stands still.
    """
    loop = asyncio.get_running_loop()
    end, real_end = loop.time() + within, time.monotonic() + within
    while True:
        answer = condition()
        value = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if loop.time() > end or time.monotonic() > real_end:
            raise AssertionError(
                f"not within {within} s: {inspect.getsource(condition).strip()};"
                f" last answer {value!r}"
            )
        await asyncio.sleep(every)
