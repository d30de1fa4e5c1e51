"""The caller that the engine works for: a task of any event loop, or a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "caller_in_words",
    "caller_inside",
    "callers",
    "calling_task",
    "calling_task_name",
    "threads",
]

callers: Final[dict[asyncio.Task[Any], asyncio.Task[Any]]] = {}
"""Maps a task of the engine's loop to the task of another event loop that called the library."""

threads: Final[dict[asyncio.Task[Any], frozenset[object]]] = {}
"""Maps the task that acts for a thread to the leases whose `with` blocks the thread is in.

While a thread is outside all `with` blocks, its task has no entry.
"""


def calling_task() -> asyncio.Task[Any] | None:
    """Return the task that called the library; None in a callback of the event loop."""
    task = asyncio.current_task()
    return None if task is None else callers.get(task, task)


def calling_task_name() -> str:
    """Return the name of the task that called the library; "" in a callback of the event loop."""
    task = calling_task()
    return "" if task is None else task.get_name()


def caller_inside() -> Callable[[Any], bool] | None:
    """Return a function that tells whether the caller is inside the block of a given lease.

    The result is None in a callback of the event loop, where no task runs.
    """
    task = asyncio.current_task()
    if task is None:
        return None
    inside = threads.get(task)
    if inside is not None:
        return inside.__contains__
    caller = callers.get(task, task)
    return lambda lease: lease.task is caller


def caller_in_words() -> tuple[str, str]:
    """Return the words for the caller and its block, such as "task" and "async with"."""
    return ("thread", "with") if asyncio.current_task() in threads else ("task", "async with")
