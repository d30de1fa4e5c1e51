"""Draws the results as PNG files; it never computes a figure that is not in the JSON file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .outcome import Outcome

__all__ = ["draw"]

mpl.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True})

_COLOURS = {
    "ours": "#c0392b",
    "floor": "#7f8c8d",
    "aioredlock": "#2980b9",
    "pottery": "#27ae60",
    "redlock-ng": "#8e44ad",
    "redis-py": "#d68910",
}
_LABELS = {"ours": "aioredlock_ng", "floor": "floor (no safety)", "redis-py": "redis-py Lock (one node)"}
_FAULTS = ("hung", "slow", "killed")


def draw(folder: Path, stem: str, outcomes: Mapping[str, Outcome]) -> list[Path]:
    """Draw what there is.

    Args:
        folder: Where the files go.
        stem: The beginning of their names.
        outcomes: By scenario.

    Returns:
        The files written.
    """
    figures: dict[str, Figure] = {}
    if "cycle" in outcomes:
        figures["cycle"] = _cycle(outcomes["cycle"])
    if faults := {name: outcomes[name] for name in _FAULTS if name in outcomes}:
        figures["faults"] = _faults(faults)
    if "memory" in outcomes:
        figures["memory"] = _memory(outcomes["memory"])
    written = []
    for name, figure in figures.items():
        path = folder / f"{stem}-{name}.png"
        figure.savefig(path, dpi=130, bbox_inches="tight")
        written.append(path)
    return written


def _cycle(outcome: Outcome) -> Figure:
    figure = Figure(figsize=(9.5, 3.8))
    left, right = figure.subplots(1, 2)
    for client in dict.fromkeys(row["client"] for row in outcome.medians):
        rows = [row for row in outcome.medians if row["client"] == client and row["per_second"]]
        style = {"color": _COLOURS[client], "marker": "o", "markersize": 4, "label": _LABELS.get(client, client)}
        style |= {"linestyle": "--"} if client == "floor" else {}
        left.plot([row["coroutines"] for row in rows], [row["per_second"] for row in rows], **style)
        right.plot([row["coroutines"] for row in rows], [(row["p50"] or float("nan")) * 1e3 for row in rows], **style)
    for axes, title in ((left, "cycles per second"), (right, "cycle p50, ms")):
        axes.set(xscale="log", yscale="log", title=title, xlabel="coroutines, each its own name")
        axes.grid(alpha=0.3)
    left.legend(frameon=False, fontsize=8)
    figure.suptitle("Uncontended acquire + release, five local nodes, one process")
    return figure


def _faults(outcomes: Mapping[str, Outcome]) -> Figure:
    figure = Figure(figsize=(3.6 * len(outcomes), 3.4))
    grid = figure.subplots(1, len(outcomes), squeeze=False)[0]
    for axes, (_name, outcome) in zip(grid, outcomes.items(), strict=True):
        rows = outcome.medians
        for place, row in enumerate(rows):
            colour = _COLOURS[row["client"]]
            axes.bar(place - 0.2, (row["healthy_p50"] or 0) * 1e3, 0.38, color=colour, alpha=0.35)
            if row["p50"] is None:
                axes.text(place + 0.2, 1.0, "hangs", ha="center", rotation=90, color=colour, weight="bold")
            else:
                axes.bar(place + 0.2, row["p50"] * 1e3, 0.38, color=colour)
        axes.set_xticks(range(len(rows)), [_LABELS.get(row["client"], row["client"]) for row in rows], rotation=20)
        axes.set(yscale="log", title=outcome.title.partition(",")[0])
        axes.grid(axis="y", alpha=0.3)
    grid[0].set_ylabel("cycle p50, ms (pale: healthy)")
    return figure


def _memory(outcome: Outcome) -> Figure:
    figure = Figure(figsize=(6, 3))
    axes = figure.subplots()
    samples = outcome.raw[0]["samples"]
    axes.plot([at for at, _ in samples], [size / 1e6 for _, size in samples], color=_COLOURS["ours"])
    axes.set(title=outcome.title, xlabel="seconds since the node hung", ylabel="resident memory, MB", ylim=(0, None))
    axes.grid(alpha=0.3)
    return figure
