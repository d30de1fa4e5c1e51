"""Find the exceptions of bodies, and add notes to them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

__all__ = ["add_note", "own_exception"]


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, unless its class forbids new attributes (a frozen dataclass)."""
    with suppress(Exception):
        error.add_note(note)


def own_exception(
    exc: BaseException | None, task: asyncio.Task[object], cancelling: int
) -> BaseException | None:
    """Return the exception of a body; None if the body ended without an exception of its own.

    With `GeneratorExit`, Python closes the generator that contains the body. No caller sees this
    exception, so an error in its note would be lost. But if other code has cancelled the reader of
    the generator, the reader sees its cancellation, which has priority.

    Args:
        exc: The exception that ended the body; None after a normal end.
        task: The task that entered the body.
        cancelling: What `task.cancelling()` returned then.
    """
    if not isinstance(exc, GeneratorExit):
        return exc
    reader = asyncio.current_task()
    assert reader is not None
    return exc if reader.cancelling() > (cancelling if reader is task else 0) else None
