"""Waits for a condition, and never for a fixed length of time."""

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
    """Wait until `condition` (plain or async) returns a true value, and return this value.

    A long limit costs no time when the condition comes true, and reconnecting alone may take five
    seconds on a busy machine. If the condition is the deletion of a key, the ttl of the key must be
    longer than `within`. Otherwise the key may simply expire.

    The limit also counts in real time, because the time of a virtual loop may stand still.

    Raises:
        AssertionError: The condition did not come true within `within` seconds.
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
                f"not true within {within} s: {inspect.getsource(condition).strip()};"
                f" last answer {value!r}"
            )
        await asyncio.sleep(every)
