"""Draw the figures of the study: `drawing.py SCALING.json FOLDER`.

This program runs in an environment that contains matplotlib but not the library.
"""

from __future__ import annotations

import json
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
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8C6D31")


def main(source: Path, folder: Path) -> None:
    """Draw all figures, and print the written files."""
    document = json.loads(source.read_text(encoding="utf-8"))
    simulated, calculated = document["simulated"], document["calculated"]
    figures = {
        "latency": _latency(simulated["latency"]),
        "contention": _contention(simulated["contention"], calculated["waiting"]),
        "mix": _mix(simulated["hot"], simulated["resources"]),
        "load": _load(simulated["load"]),
        "batches": _batches(document["measured"]["batches"]),
    }
    for name, figure in figures.items():
        path = folder / f"scaling-{name}.png"
        figure.savefig(path, dpi=110, metadata={"Software": None})
        print(f"written: {path}")


def _latency(found: list[dict[str, Any]]) -> Figure:
    networks = list(dict.fromkeys(row["network"] for row in found))
    figure = Figure(figsize=(10, 3.3), layout="constrained")
    grid = figure.subplots(1, len(networks), squeeze=False)[0]
    for axes, network in zip(grid, networks, strict=True):
        for colour, condition in zip(
            _COLOURS, dict.fromkeys(row["condition"] for row in found), strict=False
        ):
            rows = [
                row for row in found if row["network"] == network and row["condition"] == condition
            ]
            nodes = [row["nodes"] for row in rows]
            axes.plot(
                nodes,
                [row["p50"] * 1e3 for row in rows],
                color=colour,
                marker="o",
                markersize=4,
                label=condition,
            )
            axes.plot(
                nodes,
                [row["p99"] * 1e3 for row in rows],
                color=colour,
                marker="^",
                markersize=4,
                linestyle=":",
            )
        axes.set(
            title=network,
            xlabel="nodes",
            yscale="log",
            xticks=sorted({row["nodes"] for row in found}),
        )
        axes.grid(alpha=0.3, which="both")
    grid[0].set_ylabel("acquire, ms (solid: p50, dotted: p99)")
    figure.legend(
        *grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False
    )
    return figure


def _contention(found: list[dict[str, Any]], waiting: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(10, 3.3), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    processes = [row["processes"] for row in found]
    left.plot(
        processes,
        [row["rate"] for row in found],
        color=_COLOURS[0],
        marker="o",
        label="acquisitions/s",
    )
    left.plot(
        processes,
        [row["changes"] for row in found],
        color=_COLOURS[1],
        marker="s",
        label="to another process/s",
    )
    middle.plot(
        processes,
        [row["commands"] for row in found],
        color=_COLOURS[0],
        marker="o",
        label="commands",
    )
    told = [row for row in found if row["pushes"]]
    middle.plot(
        [r["processes"] for r in told],
        [r["pushes"] for r in told],
        color=_COLOURS[1],
        marker="s",
        label="pushes",
    )
    clients = [row["clients"] for row in waiting]
    right.plot(
        clients, [row["rate"] for row in waiting], color=_COLOURS[3], marker="o", label="calculated"
    )
    right.plot(
        processes, [row["rate"] for row in found], color=_COLOURS[0], marker="o", label="simulated"
    )
    left.set(title="simulated: one lock, five nodes, one zone", ylim=(0, None), xscale="log")
    middle.set(title="simulated: messages per acquisition", xscale="log", yscale="log")
    right.set(title="hand-overs/s that the lead server bears", xscale="log", yscale="log")
    for axes in (left, middle, right):
        axes.set_xlabel("processes that want it")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    return figure


def _mix(hot: list[dict[str, Any]], resources: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(10, 3.3), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    shares = [row["share"] * 100 for row in hot]
    left.plot(shares, [row["rate"] for row in hot], color=_COLOURS[0], marker="o", label="all")
    left.plot(
        shares,
        [row["hot_rate"] for row in hot],
        color=_COLOURS[3],
        marker="s",
        label="of the hot name",
    )
    for kind, colour in (("hot", _COLOURS[3]), ("cold", _COLOURS[2])):
        rows = [row for row in hot if row[kind]["p50"] is not None]
        label = "the hot name" if kind == "hot" else "others"
        middle.plot(
            [r["share"] * 100 for r in rows],
            [r[kind]["p50"] * 1e3 for r in rows],
            color=colour,
            marker="o",
            label=label,
        )
    right.plot(
        [row["resources"] for row in resources],
        [row["rate"] for row in resources],
        color=_COLOURS[0],
        marker="o",
    )
    left.set(title="acquisitions/s", xlabel="% of acquisitions that hit one name", ylim=(0, None))
    middle.set(title="acquire p50, ms", xlabel="% of acquisitions that hit one name", yscale="log")
    right.set(title="acquisitions/s", xlabel="names, equally likely", xscale="log", ylim=(0, None))
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
    left.legend(frameon=False)
    middle.legend(frameon=False)
    return figure


def _load(found: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(6, 3.3), layout="constrained")
    axes = figure.subplots()
    for colour, nodes in zip(_COLOURS, dict.fromkeys(row["nodes"] for row in found), strict=False):
        rows = [row for row in found if row["nodes"] == nodes]
        rates = [row["offered"] for row in rows]
        axes.plot(
            rates,
            [row["p50"] * 1e3 for row in rows],
            color=colour,
            marker="o",
            label=f"{nodes} nodes, p50",
        )
        axes.plot(
            rates,
            [row["p99"] * 1e3 for row in rows],
            color=colour,
            marker="^",
            linestyle=":",
            label=f"{nodes} nodes, p99",
        )
    axes.set(
        title="acquire under load, one zone, simulated",
        xlabel="acquisitions/s",
        ylabel="ms",
        yscale="log",
        xlim=(0, None),
    )
    axes.grid(alpha=0.3, which="both")
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False
    )
    return figure


def _batches(servers: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(6, 3.3), layout="constrained")
    axes = figure.subplots()
    for colour, (name, scripts) in zip(_COLOURS, servers.items(), strict=False):
        sizes = [int(size) for size in scripts["extend"]]
        axes.plot(
            sizes,
            list(scripts["extend"].values()),
            color=colour,
            marker="o",
            markersize=4,
            label=name,
        )
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set(
        title="server CPU per renewed lease, µs, measured",
        xlabel="leases in a command",
        ylim=(0, None),
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
