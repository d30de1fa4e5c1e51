"""Print tables and bars, and write the JSON file, the tables and the plots.

This module computes no figures.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.table import Table

from .environments import python_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console

    from .outcome import Bar, Grid, Outcome

__all__ = ["draw_plots", "print_bars", "print_outcome", "write_json", "write_tables"]

_PLOTS: Final = Path(__file__).with_name("plots.py")
_DRAWN: Final = {"cycle", "hung", "slow", "killed", "memory"}
_PLOTS_NEED: Final = ("matplotlib==3.10.7",)


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Print the tables and notes of one scenario."""
    for grid in outcome.grids:
        _print_grid(console, grid)
    for note in outcome.notes:
        console.print(f"  {note}", highlight=False, markup=False)


def _print_grid(console: Console, grid: Grid) -> None:
    table = Table(title=grid.title, box=box.SIMPLE_HEAD, title_justify="left")
    for number, column in enumerate(grid.columns):
        text = any(
            not row[number][:1].isdigit()
            for row in grid.rows
            if row[number] not in ("", "-", "hangs")
        )
        table.add_column(column, justify="left" if text else "right")
    previous = None
    for row in grid.rows:
        if previous is not None and row[0] != previous and row[0].isdigit():
            table.add_section()
        table.add_row(*row, style="bold" if "ours" in row else None)
        previous = row[0]
    console.print(table)


def print_bars(console: Console, bars: Sequence[Bar]) -> None:
    """Print every bar with its measured value."""
    table = Table(title="Bars", box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("bar", "measured", "must be", ""):
        table.add_column(column, justify="left" if column == "bar" else "right")
    for bar in bars:
        table.add_row(bar.text, *_cells(bar), "[green]kept" if bar.kept else "[red]missed")
    console.print(table)


def write_json(path: Path, about: Mapping[str, Any], outcomes: Mapping[str, Outcome]) -> None:
    """Write all measurements to a JSON file.

    Args:
        path: The file.
        about: The machine, the versions and the options of the run.
        outcomes: By scenario.
    """
    document = {
        **about,
        "bars": [bar.as_json() for outcome in outcomes.values() for bar in outcome.bars],
        "scenarios": {
            name: {
                "title": outcome.title,
                "medians": outcome.medians,
                "bars": [bar.as_json() for bar in outcome.bars],
                "notes": outcome.notes,
                "raw": outcome.raw,
            }
            for name, outcome in outcomes.items()
        },
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def write_tables(path: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Write the tables, notes and bars as Markdown.

    Args:
        path: The file.
        outcomes: By scenario.
    """
    parts = []
    for outcome in outcomes.values():
        parts += [
            f"**{grid.title}**\n\n{_markdown(grid.columns, grid.rows)}" for grid in outcome.grids
        ]
        if outcome.notes:
            parts.append("\n".join(f"* {note}" for note in outcome.notes))
    bars = [bar for outcome in outcomes.values() for bar in outcome.bars]
    if bars:
        rows = [(bar.text, *_cells(bar), "kept" if bar.kept else "missed") for bar in bars]
        parts.append(_markdown(("bar", "measured", "must be", ""), rows))
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)
    )


def _cells(bar: Bar) -> tuple[str, str]:
    """Return the measured value and the limit of a bar."""
    measured = (
        "nothing"
        if bar.value is None
        else f"{bar.value:,.3g}"
        if abs(bar.value) < 1000
        else f"{bar.value:,.0f}"
    )
    return measured, f"{'≥' if bar.least else '≤'} {bar.limit:,g}"


def draw_plots(document: Path) -> list[Path]:
    """Draw the plots of a JSON file as PNG files beside it.

    matplotlib is large and needed only here, so it has an environment of its own.

    Returns:
        The files written.
    """
    if not _DRAWN & json.loads(document.read_text(encoding="utf-8"))["scenarios"].keys():
        return []
    command = [python_with("plots", _PLOTS_NEED), _PLOTS, document]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [Path(line) for line in done.stdout.splitlines()]
