"""Add notes to the exceptions of bodies."""

from __future__ import annotations

from contextlib import suppress

__all__ = ["add_note"]


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, unless its class forbids new attributes (a frozen dataclass)."""
    with suppress(Exception):
        error.add_note(note)
