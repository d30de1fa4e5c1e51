"""Wrap prose into lines of whole words."""

from __future__ import annotations

import textwrap

__all__ = ["wrapped"]


def wrapped(text: str, width: int, indent: str = "", further: str | None = None) -> list[str]:
    """Return the text as lines of whole words.

    A word is never broken, even if it is longer than `width`. A line break at a hyphen would split
    an option such as `--no-wait`.

    Args:
        text: The text. Line breaks and repeated spaces count as one space.
        width: Width of a line with its indent.
        indent: Indent of the first line.
        further: Indent of the other lines. Default: the indent of the first line.
    """
    return textwrap.wrap(
        " ".join(text.split()),
        width,
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_long_words=False,
        break_on_hyphens=False,
    )
