"""Format figures for the page, and write them between its marks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = ["both", "ms", "number", "rare", "size", "table", "write_page"]


def write_page(page: Path, parts: dict[str, str]) -> None:
    """Replace the text between the marks of the page.

    Raises:
        ValueError: A mark is missing, or no part belongs to a mark.
    """
    text = page.read_text(encoding="utf-8")
    marks = re.findall(r"<!-- scaling:(\w+):begin -->", text)
    if sorted(marks) != sorted(parts):
        raise ValueError(
            f"{page.name} has marks for {sorted(marks)}, figures are for {sorted(parts)}"
        )
    for name, part in parts.items():
        begin, end = f"<!-- scaling:{name}:begin -->", f"<!-- scaling:{name}:end -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"{page.name} has no {end}")
        text = f"{before}{begin}\n{part}\n{end}{after}"
    page.write_text(text, encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ms(seconds: float | None) -> str:
    """Return milliseconds with three digits."""
    if seconds is None:
        return "-"
    value = seconds * 1e3
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def number(value: float) -> str:
    """Return a number with three digits at most."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def both(row: dict[str, Any]) -> str:
    return f"{ms(row['p50'])} / {ms(row['p99'])}"


def rare(share: float) -> str:
    """Return a share of time as a time per year."""
    seconds = share * 365 * 86_400
    for unit, large in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= large:
            return f"{seconds / large:.1f} {unit} a year"
    return "under 1 s a year"


def size(bytes_: float) -> str:
    for unit, large in (("GB", 1e9), ("MB", 1e6)):
        if bytes_ >= large:
            return f"{bytes_ / large:,.1f} {unit}"
    return f"{bytes_ / 1e3:,.0f} kB"
