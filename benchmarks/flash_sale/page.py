"""Format the figures for docs/flash-sale.md, and write them between the marks of the page."""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING, Any

from .summary import COLUMNS, ceilings, cells

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.outcome import Bar

__all__ = ["parts", "shown", "write"]


_PLOT = "![Sales per second, waits and commands of every lock](images/flash-sale.png)"
_BARS = (
    "In these tables *ours* runs on five nodes. A slash means a ratio. "
    "*Best* is the best polling lock, and *best on five nodes* is the best polling lock on five"
    " nodes."
)


def parts(
    document: dict[str, Any], rows: Sequence[dict[str, Any]], bars: Sequence[Bar]
) -> dict[str, str]:
    """Return the Markdown of each mark."""
    return {
        "machine": _machine(document),
        "tables": f"{_PLOT}\n\n{_tables(rows)}",
        "bars": _bars(rows, bars),
        "classic": _classic(rows),
    }


def shown(page: Path, name: str) -> str:
    """Return the text between two marks of the page.

    Raises:
        ValueError: It has no such marks.
    """
    text = page.read_text(encoding="utf-8")
    found = re.search(
        rf"(<!-- flash-sale:{name}:begin -->\n)(.*?)(\n<!-- flash-sale:{name}:end -->)",
        text,
        re.DOTALL,
    )
    if found is None:
        raise ValueError(f"{page.name} has no marks for {name}")
    return found[2]


def write(page: Path, new: dict[str, str]) -> None:
    """Replace the text between the marks.

    Raises:
        ValueError: A mark is missing.
    """
    for name, part in new.items():
        old, text = shown(page, name), page.read_text(encoding="utf-8")
        begin = f"<!-- flash-sale:{name}:begin -->\n"
        page.write_text(text.replace(f"{begin}{old}\n", f"{begin}{part}\n"), encoding="utf-8")


def _machine(document: dict[str, Any]) -> str:
    machine, sale = document["machine"], document["sales"][0]
    rounds = 1 + max(turn["round"] for turn in document["turns"])
    good = [turn for turn in document["turns"] if "failed" not in turn and sum(turn["shares"])]
    each = statistics.median(turn["buyers_cpu"] / sum(turn["shares"]) for turn in good) * 1e6
    return (
        f"{machine['cores']} cores ({machine['cpu']}), {machine['system']}, CPython "
        f"{machine['python']}, {machine['server'].partition(' sha=')[0]}; "
        f"{document['started'][:10]}, load average before the run {machine['load_average'][0]:g}. "
        f"The crowd has {sale['workers']} workers and {sale['buyers']} buyers at once, who hang up "
        f"after {sale['patience']:g} s. Timeouts, errors and oversold items are sums over {rounds} "
        f"alternating round{'s' if rounds > 1 else ''}, all other figures are medians of these "
        f"rounds. The crowd itself took {each:.0f} µs of CPU per request. Every round: "
        "[flash_sale.json](../benchmarks/results/flash_sale.json)."
    )


def _tables(rows: Sequence[dict[str, Any]]) -> str:
    tables = []
    for sale in dict.fromkeys(row["sale"] for row in rows):
        head = [f"{sale}", *COLUMNS[1:]]
        body = [cells(row) for row in rows if row["sale"] == sale]
        lines = [head, ["---", *("---:" for _ in head[1:])], *body]
        tables.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(tables)


def _bars(rows: Sequence[dict[str, Any]], bars: Sequence[Bar]) -> str:
    lines = []
    sale = None
    for bar in bars:
        of, _, text = bar.text.partition(": ")
        if of != sale:
            lines += ["", f"| {of} | measured | must be | |", "| --- | ---: | ---: | --- |"]
            sale = of
        value = "nothing" if bar.value is None else f"{bar.value:,.3g}"
        lines.append(
            f"| {text} | {value} | {'≥' if bar.least else '≤'} {bar.limit:g} | "
            f"{'kept' if bar.kept else '**missed**'} |"
        )
    return "\n".join([_BARS, *lines, "", *(f"* {ceiling}." for ceiling in ceilings(rows))])


def _classic(rows: Sequence[dict[str, Any]]) -> str:
    sale = list(dict.fromkeys(row["sale"] for row in rows))[-1]
    found = {row["contestant"]: row for row in rows if row["sale"] == sale}
    wanted = {
        "GETSET, no sleep": "not sleeping",
        "GETSET, 0.1 s": "sleeping 0.1 s",
        "GETSET, 2 s": "sleeping 2 s",
    }
    wanted |= {name: name for name in found if name.startswith("ours")}
    head = [sale, "sales/s", "commands per sale", "lock servers, µs per sale", "p99, ms"]
    lines = [f"| {' | '.join(head)} |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, words in wanted.items():
        if name in found:
            cell = dict(zip(COLUMNS, cells(found[name]), strict=True))
            each = (
                cell["sales/s"],
                cell["commands/sale"],
                cell["lock servers µs/sale"],
                cell["p99, ms"],
            )
            lines.append(f"| {words} | {' | '.join(each)} |")
    return "\n".join(lines)
