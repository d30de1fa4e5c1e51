"""What a scenario hands back: raw rounds, a table, bars; it never measures and never prints."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from .clients import Client

__all__ = ["Bar", "Grid", "Outcome", "Settings", "at_least", "at_most", "median", "paired_ratio"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line asked for.

    Attributes:
        rounds: How often everybody takes a turn.
        quick: Short windows: figures for tuning, not for claims.
        clients: Who takes part.
        say: Tells the user what is going on.
        cases: The cases of `crowd` that run; empty: all.
        libraries: Further source trees of the library that `crowd` and `cycle` measure.
    """

    rounds: int
    quick: bool
    clients: Sequence[Client]
    say: Callable[[str], None]
    cases: Sequence[str] = ()
    libraries: Sequence[Path] = ()

    def seconds(self, full: float, quick: float) -> float:
        """Return the length of a window: `full`, or `quick` in a quick run."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Bar:
    """A promise and whether it was kept.

    Attributes:
        text: What is promised, with its unit.
        value: What was measured; None: nothing, so not kept.
        limit: The bar.
        least: Whether the value must be at least the limit; else at most.
    """

    text: str
    value: float | None
    limit: float
    least: bool

    @property
    def kept(self) -> bool:
        """Whether the promise was kept."""
        if self.value is None:
            return False
        return self.value >= self.limit if self.least else self.value <= self.limit

    def as_json(self) -> dict[str, Any]:
        """Return it for the JSON file."""
        sign = ">=" if self.least else "<="
        return {
            "bar": self.text,
            "measured": self.value,
            "must_be": f"{sign} {self.limit:g}",
            "pass": self.kept,
        }


def at_least(text: str, value: float | None, limit: float) -> Bar:
    """Return the bar that a value must reach."""
    return Bar(text, value, limit, least=True)


def at_most(text: str, value: float | None, limit: float) -> Bar:
    """Return the bar that a value must not pass."""
    return Bar(text, value, limit, least=False)


@dataclass(slots=True)
class Grid:
    """One table.

    Attributes:
        title: Its title.
        columns: Its head.
        rows: Its cells, ready to print.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """One scenario's results.

    Attributes:
        title: The table's title.
        columns: The table's head.
        rows: The table, ready to print.
        raw: Every round as it was measured.
        medians: What the table and the bars were made from.
        bars: The promises.
        notes: What a reader must know.
        further: Tables with other columns, printed after the first.
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
        """Every table of it that has rows, in order."""
        return [
            grid for grid in (Grid(self.title, self.columns, self.rows), *self.further) if grid.rows
        ]


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of what is there, None when nothing is."""
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


def paired_ratio(ours: dict[int, float], theirs: dict[int, float]) -> float | None:
    """Return the median over rounds of ours / theirs, each ratio taken within one round.

    Neighbours in time share the machine's mood, so the ratio is steadier than that of two medians.

    Args:
        ours: Figures by round.
        theirs: Figures by round; rounds missing in either are left out.
    """
    return median(
        ours[number] / theirs[number] for number in ours.keys() & theirs.keys() if theirs[number]
    )
