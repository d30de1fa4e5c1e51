"""Lines of prose: whole words, never wider than asked for."""

from __future__ import annotations

import textwrap

__all__ = ["wrapped"]


def wrapped(text: str, width: int, indent: str = "", further: str | None = None) -> list[str]:
    """Return the text as lines of at most this width.

    Only a single word may be longer. Words are not broken at hyphens either, because options have hyphens.

    Args:
        text: Its own line breaks and runs of spaces do not count.
        width: Of a line with its indent.
        indent: Of the first line.
        further: Of the other lines; the same if it is not given.
    """
    return textwrap.wrap(
        " ".join(text.split()),
        width,
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_long_words=False,
        break_on_hyphens=False,
    )
