"""Draw the results of a JSON file as PNG files beside it: `plots.py FILE`.

This program runs in an environment of its own, which contains matplotlib but not the library.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import matplotlib as mpl  # type: ignore[import-not-found]
from matplotlib.figure import Figure  # type: ignore[import-not-found]

mpl.rcParams.update(
    {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True}
)

_COLOURS = {
    "ours": "#c0392b",
    "semaphore": "#e67e22",
    "bare": "#34495e",
    "floor": "#7f8c8d",
    "aioredlock": "#2980b9",
    "pottery": "#27ae60",
    "redlock-ng": "#8e44ad",
    "redis-py": "#d68910",
}
_LABELS = {
    "ours": "aioredlock_ng",
    "semaphore": "aioredlock_ng, a semaphore",
    "bare": "bare commands (no safety)",
    "floor": "floor (no safety)",
    "redis-py": "redis-py (one node)",
}
_FAULTS = ("hung", "slow", "killed")


def _colour(client: str) -> str:
    """Return the colour of a client. The other trees of `--library` get one of matplotlib's ten."""
    return _COLOURS.get(client, f"C{crc32(client.encode()) % 10}")


def main(document: Path) -> None:
    """Draw the scenarios that have plots, and print the written files, one per line."""
    scenarios = json.loads(document.read_text(encoding="utf-8"))["scenarios"]
    figures: dict[str, Figure] = {}
    if "cycle" in scenarios:
        figures["cycle"] = _cycle(scenarios["cycle"])
    if faults := [scenarios[name] for name in _FAULTS if name in scenarios]:
        figures["faults"] = _faults(faults)
    if "memory" in scenarios:
        figures["memory"] = _memory(scenarios["memory"])
    for name, figure in figures.items():
        path = document.with_name(f"{document.stem}-{name}.png")
        figure.savefig(path, dpi=130, bbox_inches="tight")
        print(path)


def _cycle(scenario: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(9.5, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    medians = [row for row in scenario["medians"] if row["per_second"] and row["p50"]]
    for client in dict.fromkeys(row["client"] for row in medians):
        rows = [row for row in medians if row["client"] == client]
        coroutines = [row["coroutines"] for row in rows]
        style = {
            "color": _colour(client),
            "marker": "o",
            "markersize": 4,
            "label": _LABELS.get(client, client),
        }
        style |= {"linestyle": "--"} if client in ("bare", "floor") else {}
        left.plot(coroutines, [row["per_second"] for row in rows], **style)
        right.plot(coroutines, [row["p50"] * 1e3 for row in rows], **style)
    ticks = sorted({row["coroutines"] for row in medians})
    for axes, title in ((left, "cycles per second"), (right, "cycle p50, ms")):
        axes.set(xscale="log", yscale="log", title=title, xlabel="coroutines, each its own name")
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    right.legend(frameon=False, fontsize=8)
    figure.suptitle("Uncontended acquire + release, five local nodes, one client process")
    return figure


def _faults(scenarios: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(3.4 * len(scenarios), 3.4), layout="constrained")
    grid = figure.subplots(1, len(scenarios), squeeze=False, sharey=True)[0]
    for axes, scenario in zip(grid, scenarios, strict=True):
        rows = scenario["medians"]
        for place, row in enumerate(rows):
            colour = _colour(row["client"])
            axes.bar(place - 0.2, (row["healthy_p50"] or 0) * 1e3, 0.38, color=colour, alpha=0.35)
            if row["p50"] is None:
                axes.text(
                    place + 0.2, 0.5, "hangs", ha="center", rotation=90, color=colour, weight="bold"
                )
            else:
                axes.bar(place + 0.2, row["p50"] * 1e3, 0.38, color=colour)
        axes.set_xticks(
            range(len(rows)),
            [_LABELS.get(row["client"], row["client"]) for row in rows],
            rotation=20,
        )
        axes.set(yscale="log", title=scenario["title"].partition(",")[0])
        axes.grid(axis="y", alpha=0.3)
    grid[0].set_ylabel("cycle p50, ms (pale: healthy)")
    return figure


def _memory(scenario: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    samples = scenario["raw"][0]["samples"]
    axes.plot(
        [at for at, _ in samples], [size / 1e6 for _, size in samples], color=_COLOURS["ours"]
    )
    axes.set(
        title=scenario["title"],
        xlabel="seconds since the node hung",
        ylabel="resident memory, MB",
        ylim=(0, None),
    )
    axes.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]))
