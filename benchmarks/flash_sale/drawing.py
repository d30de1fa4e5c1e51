"""Draw the figures of the sale: `drawing.py FLASH_SALE.json OUT.png`.

This program runs in an environment that contains matplotlib but not the library.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl  # type: ignore[import-not-found,unused-ignore]
from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]

mpl.rcParams.update(
    {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True}
)

# These are the colours of Okabe and Ito. People with a colour vision deficiency can distinguish
# them.
_OURS, _POLLS, _NONE = "#D55E00", "#0072B2", "#999999"
_NO_SERVER = ("no lock", "asyncio.Lock")


def main(source: Path, target: Path) -> None:
    """Draw the sales, the waits of buyers and the commands to lock servers of the longer sale."""
    document = json.loads(source.read_text(encoding="utf-8"))
    sale = document["sales"][-1]["name"]
    names = [each["name"] for each in document["contestants"]]
    turns = {
        name: [t for t in document["turns"] if (t["contestant"], t["sale"]) == (name, sale)]
        for name in names
    }
    figure = Figure(figsize=(11, 0.6 + 0.32 * len(names)), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharey=True)
    colours = [
        _OURS if name.startswith("ours") else _NONE if name.startswith(_NO_SERVER) else _POLLS
        for name in names
    ]
    _bars(left, turns, colours, lambda turn: turn["sales_per_second"], "sales/s")
    _bars(
        middle,
        turns,
        colours,
        lambda turn: turn["wait"] and turn["wait"]["p99"],
        "p99 of a buyer's wait, s",
    )
    _bars(
        right,
        turns,
        colours,
        lambda turn: _each(turn, "commands_sent"),
        "commands to lock servers per sale",
    )
    for axes in (left, right):
        axes.set_xscale("log")
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    figure.suptitle(f"{document['sales'][-1]['buyers']} buyers at once, {sale}", fontsize=10)
    figure.savefig(target, dpi=110, metadata={"Software": None})


def _each(turn: dict[str, Any], figure: str) -> float | None:
    return turn[figure] / turn["sold_by_server"] if turn["sold_by_server"] else None


def _bars(
    axes: Any, turns: dict[str, list[dict[str, Any]]], colours: list[str], figure: Any, title: str
) -> None:
    for place, (mine, colour) in enumerate(zip(turns.values(), colours, strict=True)):
        values = [value for turn in mine if "failed" not in turn and (value := figure(turn))]
        if not values:
            axes.text(0, place, " -", transform=axes.get_yaxis_transform(), va="center")
            continue
        value = statistics.median(values)
        axes.barh(place, value, color=colour)
        axes.text(
            value,
            place,
            f" {value:,.0f}" if value >= 10 else f" {value:.2g}",
            va="center",
            fontsize=8,
        )
    axes.set_title(title, fontsize=9)
    axes.margins(x=0.2)
    axes.grid(axis="x", alpha=0.3)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
