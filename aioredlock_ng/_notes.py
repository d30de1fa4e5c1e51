"""Find losses in the exceptions of bodies, and add notes to these exceptions."""

from __future__ import annotations

from contextlib import suppress

from aioredlock_ng.errors import LockLost

__all__ = ["add_note", "loss_in"]


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, unless its class forbids new attributes (a frozen dataclass)."""
    with suppress(Exception):
        error.add_note(note)


def loss_in(error: BaseException, resource: str | None = None) -> LockLost | None:
    """Return `error` if it is a `LockLost`, or the first error of a group of only such errors.

    If `resource` is given, only losses of this lock count. For any other error, and for a group
    with any other error, the result is None.
    """
    if isinstance(error, BaseExceptionGroup):
        losses = [loss_in(part, resource) for part in error.exceptions]
        return None if None in losses else losses[0]
    if isinstance(error, LockLost) and resource in (None, error.resource):
        return error
    return None
