"""Hold the results of a scenario: raw rounds, tables and bars.

This module neither measures nor prints.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from .clients import Client

__all__ = [
    "Bar",
    "Grid",
    "Outcome",
    "Settings",
    "at_least",
    "at_most",
    "lost",
    "median",
    "paired_ratio",
]


_OURS: Final = ("ours", "semaphore")
"""The names of our clients in the rows. A row without a name is ours."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices of the command line.

    Attributes:
        rounds: Number of turns of each client.
        quick: True for short windows, whose figures are for tuning and not for claims.
        clients: The clients that take part.
        say: Callback that shows the progress to the user.
        cases: The cases of `crowd` that run. Empty for all cases.
        libraries: Further source trees of the library that `crowd` and `cycle` measure.
    """

    rounds: int
    quick: bool
    clients: Sequence[Client]
    say: Callable[[str], None]
    cases: Sequence[str] = ()
    libraries: Sequence[Path] = ()

    def seconds(self, full: float, quick: float) -> float:
        """Return the length of a window, `full` or `quick`."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit that a figure must keep, and the measured figure.

    Attributes:
        text: The name of the figure, with its unit.
        value: The measured value. None if nothing was measured.
        limit: The limit.
        least: True if the value must be at least the limit, else at most.
    """

    text: str
    value: float | None
    limit: float
    least: bool

    @property
    def kept(self) -> bool:
        """True if the figure keeps the limit. False if nothing was measured."""
        if self.value is None:
            return False
        return self.value >= self.limit if self.least else self.value <= self.limit

    def as_json(self) -> dict[str, Any]:
        """Return the bar for the JSON file."""
        sign = ">=" if self.least else "<="
        return {
            "bar": self.text,
            "measured": self.value,
            "must_be": f"{sign} {self.limit:g}",
            "pass": self.kept,
        }


def at_least(text: str, value: float | None, limit: float) -> Bar:
    """Return a bar whose value must be at least `limit`."""
    return Bar(text, value, limit, least=True)


def at_most(text: str, value: float | None, limit: float) -> Bar:
    """Return a bar whose value must be at most `limit`."""
    return Bar(text, value, limit, least=False)


@dataclass(slots=True)
class Grid:
    """One table.

    Attributes:
        title: The title.
        columns: The head.
        rows: The cells as text.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """The results of one scenario.

    Attributes:
        title: The table's title.
        columns: The table's head.
        rows: The cells of the table as text.
        raw: The figures of every round.
        medians: The medians from which the table and the bars are made.
        bars: The bars.
        notes: Explanations for readers of the tables.
        further: Tables with other columns, printed after the first one.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    raw: list[dict[str, Any]] = field(default_factory=list)
    medians: list[dict[str, Any]] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    further: list[Grid] = field(default_factory=list)

    @property
    def grids(self) -> list[Grid]:
        """All tables that have rows, in order."""
        return [
            grid for grid in (Grid(self.title, self.columns, self.rows), *self.further) if grid.rows
        ]

    def failed_rounds(self, name: str) -> Bar:
        """Return a bar for the rounds in which our client could not be measured.

        Medians leave these rounds out, so the other bars do not show them.

        Args:
            name: The name of the scenario.
        """
        failed = sum(
            "failed" in row and row.get("client", row.get("code", "ours")) in _OURS
            for row in self.raw
        )
        return at_most(f"{name}: rounds of ours that failed", float(failed), 0)


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are not None. Return None if all are None."""
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


def lost(rows: Iterable[dict[str, Any]]) -> float | None:
    """Return the number of acquires and releases that failed or hung in these rounds.

    Return None if nothing was measured, or if a round could not be measured.
    """
    rows = list(rows)
    if not rows or any("failed" in row for row in rows):
        return None
    return float(sum(row["errors"] + row["stuck"] for row in rows))


def paired_ratio(ours: dict[int, float], theirs: dict[int, float]) -> float | None:
    """Return the median over rounds of ours / theirs.

    Each ratio is taken within one round. The speed of a machine changes with time, so the ratio of
    neighbouring measurements is steadier than the ratio of two medians.

    Args:
        ours: Figures by round.
        theirs: Figures by round; rounds missing in either are left out.
    """
    return median(
        ours[number] / theirs[number] for number in ours.keys() & theirs.keys() if theirs[number]
    )
