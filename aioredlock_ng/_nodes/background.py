"""Background tasks of a manager, which are restarted after a failure."""

from __future__ import annotations

import asyncio
from pathlib import PurePath
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

from aioredlock_ng.events import TaskFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioredlock_ng.events import EventSink

__all__ = ["supervised"]

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""The shortest and the longest pause, in seconds, before failed work begins again.

The pause doubles after each failure, so that a permanent failure costs hardly any CPU. If the work
ran for longer than `LONGEST_PAUSE` before it failed, the next pause is `FIRST_PAUSE` again."""


def supervised(
    work: Callable[[], Coroutine[Any, Any, None]],
    name: str,
    emit: EventSink,
    failed: Callable[[str], None] | None = None,
) -> asyncio.Task[None]:
    """Run `work` in a task, and restart `work` after each exception.

    The task ends when `work` returns or when the task is cancelled. After each exception, `emit`
    gets a `TaskFailed`, and `failed` gets the reason as text.
    """
    return asyncio.create_task(_keep_at(work, name, emit, failed), name=f"aioredlock_ng {name}")


async def _keep_at(
    work: Callable[[], Coroutine[Any, Any, None]],
    name: str,
    emit: EventSink,
    failed: Callable[[str], None] | None,
) -> None:
    pause = FIRST_PAUSE
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        try:
            await work()
        except Exception as error:
            if loop.time() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            words = _where(error)
            emit(TaskFailed(name, words, pause))
            if failed is not None:
                failed(f"internal error: {words}")
        else:
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _where(error: Exception) -> str:
    """Return the class of an exception, with the file and the line that raised it.

    The text of the exception is left out, because it may quote a server's reply.
    """
    frame = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {PurePath(frame.filename).name}, line {frame.lineno}"
