"""The task on whose behalf the engine works, which may belong to another event loop."""

from __future__ import annotations

import asyncio
from typing import Any, Final

__all__ = ["acting_name", "acting_task", "callers"]

callers: Final[dict[asyncio.Task[Any], asyncio.Task[Any]]] = {}
"""The caller of each task that does the work of a task of another event loop.

It is module-level, because the code that asks knows neither the thread nor the manager.
"""


def acting_task() -> asyncio.Task[Any] | None:
    """Return the task that called the library; None in a callback of the event loop."""
    task = asyncio.current_task()
    return None if task is None else callers.get(task, task)


def acting_name() -> str:
    """Return the name of that task, or ""."""
    task = acting_task()
    return "" if task is None else task.get_name()
