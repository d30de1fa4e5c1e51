"""Make tables that fit the width of a line, by leaving out columns instead of wrapping cells."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Column", "can_redraw", "fitted", "output_width"]

_UNLIMITED = 10_000
"""Width of a line in a pipe or a file, in characters. Every table fits into this width."""


_NUMBER = re.compile(r"#[0-9]{1,18}\Z")
"""The number of a slot at the end of its name."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        head: Title of the column.
        rank: Columns of rank 0 are always shown. The other columns are added if they fit, the
            lowest rank first.
        share: Largest share of the line for a cell. A longer cell is cut, and ends in "…".
        right: True if the cells are aligned to the right, as numbers are.
        numbered: True if a cell may end in a number such as "#12", which is never cut off.
    """

    head: str
    rank: int = 0
    share: float = 1.0
    right: bool = False
    numbered: bool = False


def fitted(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Text | str]],
    width: int,
    frame: box.Box = box.SIMPLE_HEAD,
) -> Table:
    """Return a table without the columns that do not fit into `width`.

    Columns of rank 0 stay. If they do not fit, the table has less space between its columns, and
    numbered cells are cut further. A string of `rows` is shown literally, even if it contains
    rich's markup.
    """
    cells = [
        [
            _shortened(cell, int(width * column.share), numbered=column.numbered)
            for cell, column in zip(row, columns, strict=True)
        ]
        for row in rows
    ]
    kept: list[int] = []
    for index in sorted(range(len(columns)), key=lambda index: columns[index].rank):
        more = sorted([*kept, index])
        if not columns[index].rank or _width_of(_table(columns, cells, more, frame)) <= width:
            kept = more
    table = _table(columns, cells, kept, frame)
    if _width_of(table) <= width:
        return table
    excess = _width_of(_table(columns, cells, kept, frame, dense=True)) - width
    for index in kept:
        if columns[index].numbered and excess > 0:
            # If rich cut these cells, they would lose their numbers.
            room = max((row[index].cell_len for row in cells), default=0) - excess
            for row in cells:
                row[index] = _shortened(row[index], room, numbered=True)
    return _table(columns, cells, kept, frame, dense=True)


def _table(
    columns: Sequence[Column],
    cells: Sequence[Sequence[Text]],
    kept: Sequence[int],
    frame: box.Box,
    *,
    dense: bool = False,
) -> Table:
    table = Table(
        box=frame, pad_edge=False, show_edge=not dense, padding=(0, 0) if dense else (0, 1)
    )
    for index in kept:
        column = columns[index]
        table.add_column(
            Text(column.head), justify="right" if column.right else "left", no_wrap=True
        )
    for row in cells:
        table.add_row(*(row[index] for index in kept))
    return table


def output_width() -> int:
    """Return the width of standard output in characters.

    If standard output is not a terminal, the environment variable COLUMNS gives the width. Without
    this variable, the width is more than any table needs.
    """
    if sys.stdout.isatty():
        return Console().width
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) else _UNLIMITED


def can_redraw() -> bool:
    """Return True if standard output is a terminal that can replace lines it has shown.

    On another terminal, for example with TERM=dumb, rich would show nothing before the end.
    """
    console = Console()
    return sys.stdout.isatty() and console.is_terminal and not console.is_dumb_terminal


def _shortened(cell: Text | str, room: int, *, numbered: bool) -> Text:
    """Return a cell that has at most `room` characters, and more only if its number needs more."""
    text = Text(cell) if isinstance(cell, str) else cell.copy()
    room = max(room, 1)
    number = _NUMBER.search(text.plain) if numbered and text.cell_len > room else None
    if number is None:
        text.truncate(room, overflow="ellipsis")
        return text
    name = text[: number.start()]
    name.truncate(max(room - len(number[0]), 1), overflow="ellipsis")
    return name + number[0]


def _width_of(table: Table) -> int:
    # Without a height, rich ignores the given width on a terminal with TERM=dumb, and takes 80.
    console = Console(width=_UNLIMITED, height=1)
    return Measurement.get(console, console.options, table).maximum
