"""Find losses in the exceptions of bodies, and add notes to these exceptions."""

from __future__ import annotations

from contextlib import suppress

from aioredlock_ng.errors import LockLost

__all__ = ["add_note", "is_loss"]


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, unless its class forbids new attributes (a frozen dataclass)."""
    with suppress(Exception):
        error.add_note(note)


def is_loss(error: BaseException, resource: str | None = None) -> bool:
    """Return True if `error` is a `LockLost`, or a group of only such errors.

    If `resource` is given, only losses of this lock count.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(is_loss(part, resource) for part in error.exceptions)
    return isinstance(error, LockLost) and resource in (None, error.resource)
