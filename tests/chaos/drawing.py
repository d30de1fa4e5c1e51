"""Draws one timeline: `drawing.py TIMELINE.json OUT.png`; it runs in an environment that has
matplotlib and nothing of ours.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl  # type: ignore[import-not-found,unused-ignore]
from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]
from matplotlib.lines import Line2D  # type: ignore[import-not-found,unused-ignore]
from matplotlib.patches import Patch  # type: ignore[import-not-found,unused-ignore]

mpl.rcParams.update({"font.size": 8.5, "hatch.linewidth": 0.7, "font.family": "DejaVu Sans"})

# Okabe and Ito's colours, which those who see no red or no green can tell apart; red is kept for
# what must not be.
_PROCESSES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8C6D31")
_WRONG = "#C40000"
_TAKEN = "#F0A3A3"
_STATES = {
    "hung": ("#6B7B8C", "//", "hung (SIGSTOP)"),
    "down": ("#111111", "", "killed"),
    "quarantined": ("#F2C14E", "", "forgot: quarantine"),
    "partitioned": ("#A58BC4", "xx", "partitioned"),
    "delayed": ("#D9CCE8", "", "slow"),
    "full": ("#B5835A", "..", "out of memory"),
}
_NAMES = {
    "ours": "aioredlock_ng",
    "redis_py": "redis-py Lock (one node)",
    "aioredlock": "aioredlock 0.7.3",
}


def main(source: Path, out: Path) -> None:
    """Draw."""
    data = json.loads(source.read_text(encoding="utf-8"))
    rows = len(data["nodes"]) + len(data["resources"])
    figure = Figure(figsize=(9.6, 0.34 * rows + 1.75), layout="constrained")
    axes = figure.subplots()
    begin, end = data["begin"], data["begin"] + data["seconds"]
    colours = _colours(data["processes"])
    labels: list[tuple[float, str]] = []
    row = 0.0
    used = {
        state for node in data["nodes"] for a, b, state in node["spans"] if a < end and b > begin
    }
    for index, node in enumerate(data["nodes"]):
        _draw_node(axes, row, node, begin, end)
        labels.append((row, f"node {index + 1}"))
        row += 0.8
    row += 0.45
    axes.axhline(row - 0.62, color="#BBBBBB", linewidth=0.8)
    for resource in data["resources"]:
        _draw_resource(axes, row, resource, begin, end, colours)
        labels.append((row, resource["name"]))
        row += 1.0
    axes.set_yticks([at for at, _ in labels], [label for _, label in labels])
    axes.set(
        xlim=(begin, end),
        ylim=(row - 0.3, -0.6),
        xlabel=f"seconds since the run began; {data['source']}",
    )
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_title(_title(data), loc="left", fontsize=9.5, fontweight="bold")
    figure.legend(
        handles=_legend(data, used),
        loc="outside lower center",
        ncols=5,
        frameon=False,
        fontsize=7.5,
    )
    figure.savefig(out, dpi=110)


def _title(data: dict[str, Any]) -> str:
    fenced = ", where fences are checked" if data["kind"] == "ours" else ""
    counts = (
        f"{_NAMES[data['kind']]}: two holders at once: {data['overlaps']};"
        f" updates lost{fenced}: {data['lost_updates']}"
    )
    return f"{counts} ({data['acquired']:,} acquisitions in {data['run']:.0f} s)"


def _draw_node(axes: Any, row: float, node: dict[str, Any], begin: float, end: float) -> None:
    axes.barh(row, end - begin, 0.22, left=begin, color="#DDE5DD", zorder=1)
    for start, stop, state in node["spans"]:
        if start < end and stop > begin:
            colour, hatch, _ = _STATES[state]
            start, stop = max(start, begin), min(stop, end)
            axes.barh(
                row,
                stop - start,
                0.5,
                left=start,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0,
                zorder=2,
            )
    for at in node["points"]:
        if begin <= at <= end:
            axes.plot(
                at, row, marker="|", markersize=10, markeredgewidth=1.6, color="#333333", zorder=3
            )


def _draw_resource(
    axes: Any,
    row: float,
    resource: dict[str, Any],
    begin: float,
    end: float,
    colours: dict[str, str],
) -> None:
    for start, stop, taken in resource["both"]:
        if start < end and stop > begin:
            # Wide enough to be seen, and exact in its begin.
            axes.barh(
                row,
                max(stop - start, 0.03),
                0.94,
                left=start,
                color=_TAKEN if taken else _WRONG,
                zorder=2,
            )
    lane_ends = [-1e9, -1e9]
    for bar in resource["bars"]:
        lane = 0 if bar["from"] >= lane_ends[0] else 1
        alone = not any(a < bar["to"] and b > bar["from"] for a, b, _ in resource["both"])
        lane_ends[lane] = max(lane_ends[lane], bar["to"])
        if bar["from"] >= end or bar["to"] <= begin:
            continue
        start, stop = max(bar["from"], begin), min(bar["to"], end)
        place, height = (row, 0.56) if alone else (row + (-0.19, 0.19)[lane], 0.34)
        axes.barh(
            place,
            stop - start,
            height,
            left=start,
            color=colours[bar["by"]],
            edgecolor="white",
            linewidth=0.6,
            zorder=3,
        )
        if bar["fence"] and stop - start > 0.45:
            axes.text(
                start + 0.04,
                place,
                f"{bar['fence']}",
                va="center",
                fontsize=6.8,
                color="white",
                zorder=6,
                clip_on=True,
            )
        if bar["lost"] is not None and begin <= bar["lost"] <= end:
            # A process that stood still is notified late, perhaps when another holder has the lock.
            # The lease ended at its deadline, so the mark is drawn there.
            at = min(bar["lost"], bar["to"])
            axes.plot(
                at,
                place,
                marker="X",
                markersize=7.5,
                color="black",
                markeredgecolor="white",
                zorder=7,
            )
    for start, stop, _by in resource["stopped"]:
        if start < end and stop > begin:
            start, stop = max(start, begin), min(stop, end)
            axes.barh(
                row,
                stop - start,
                0.56,
                left=start,
                color="none",
                hatch="////",
                edgecolor="white",
                linewidth=0,
                zorder=4,
            )
    for kind, marker, size, colour, shift in (
        ("hand_offs", "o", 3.2, "black", -0.42),
        ("deleted", "v", 5.5, "black", -0.42),
        ("refused", "D", 5.5, _WRONG, 0.0),
    ):
        for at in resource[kind]:
            if begin <= at <= end:
                axes.plot(
                    at,
                    row + shift,
                    marker=marker,
                    markersize=size,
                    color=colour,
                    markeredgecolor="white",
                    zorder=8,
                )


def _colours(processes: list[str]) -> dict[str, str]:
    """By slot: a replacement has its predecessor's colour."""
    slots = sorted({process.partition(".")[0] for process in processes})
    return {
        process: _PROCESSES[slots.index(process.partition(".")[0]) % len(_PROCESSES)]
        for process in processes
    }


def _legend(data: dict[str, Any], used: set[str]) -> list[Any]:
    handles: list[Any] = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=label)
        for state, (colour, hatch, label) in _STATES.items()
        if state in used
    ]
    resources = data["resources"]
    if any(node["points"] for node in data["nodes"]):
        handles.append(
            Line2D(
                [],
                [],
                marker="|",
                color="#333333",
                linestyle="",
                markersize=9,
                label="cut, flushed",
            )
        )
    handles.append(Patch(facecolor=_PROCESSES[0], label="lock held; a colour per process"))
    if data["kind"] == "ours":
        handles.append(
            Line2D(
                [],
                [],
                marker="$17$",
                color="#666666",
                linestyle="",
                markersize=8,
                label="rank of its fence",
            )
        )
    handles.append(
        Patch(
            facecolor="#999999", hatch="////", edgecolor="white", label="holder's process stopped"
        )
    )
    handles.append(
        Line2D(
            [],
            [],
            marker="v",
            color="black",
            linestyle="",
            markersize=5,
            label="keys deleted on all nodes",
        )
    )
    handles.append(
        Line2D(
            [],
            [],
            marker="X",
            color="black",
            linestyle="",
            markersize=7,
            label="lease lost, holder notified",
        )
    )
    handles.append(
        Line2D(
            [],
            [],
            marker="o",
            color="black",
            linestyle="",
            markersize=3,
            label="hand-over to a waiter",
        )
    )
    if any(resource["refused"] for resource in resources):
        handles.append(
            Line2D(
                [],
                [],
                marker="D",
                color=_WRONG,
                linestyle="",
                markersize=5,
                label="stale write refused",
            )
        )
    both = [span for resource in resources for span in resource["both"]]
    if any(not taken for _, _, taken in both):
        handles.append(Patch(facecolor=_WRONG, label="two holders at once"))
    if any(taken for _, _, taken in both):
        handles.append(Patch(facecolor=_TAKEN, label="the same, keys deleted"))
    return handles


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
