"""Compute medians, tables and bars from the turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from benchmarks.outcome import Bar, at_least, at_most, median

from .field import ALL, ONE_BY_ONE, OURS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COLUMNS", "bars", "ceilings", "cells", "medians"]

FASTER: Final = 5.0
FEWER: Final = 0.2

_MEDIANS: Final = ("requests_per_second", "sales_per_second", "sold", "sold_out", "refused")
# Failures are summed, because a median would hide them.
_SUMS: Final = ("timeouts", "failed_requests", "oversold")

COLUMNS: Final = (
    "lock",
    "nodes",
    "requests/s",
    "sales/s",
    "p50, ms",
    "p99, ms",
    "timeouts",
    "refused",
    "errors",
    "oversold",
    "commands/sale",
    "on the busiest",
    "lock servers µs/sale",
    "shop µs/sale",
)


def medians(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per contestant and sale: medians over its rounds, and sums of failures."""
    rows = []
    for contestant in ALL:
        for sale in dict.fromkeys(turn["sale"] for turn in turns):
            mine = [
                turn
                for turn in turns
                if (turn["contestant"], turn["sale"]) == (contestant.name, sale)
            ]
            if mine:
                rows.append(
                    {
                        "contestant": contestant.name,
                        "sale": sale,
                        "nodes": contestant.nodes,
                        "polls": contestant.polls,
                    }
                )
                rows[-1] |= _row(mine)
    return rows


def _row(turns: list[dict[str, Any]]) -> dict[str, Any]:
    good = [turn for turn in turns if "failed" not in turn]
    row: dict[str, Any] = {name: median(turn[name] for turn in good) for name in _MEDIANS}
    row |= {name: sum(turn[name] for turn in good) if good else None for name in _SUMS}
    for name in ("p50", "p99", "max"):
        row[name] = median(turn["wait"][name] for turn in good if turn["wait"])
    sold = [turn for turn in good if turn["sold_by_server"]]
    for name, figure, unit in (
        ("commands", "commands_sent", 1),
        ("commands_all", "commands_all", 1),
        ("commands_busiest", "commands_sent_busiest", 1),
        ("stock_commands", "stock_commands", 1),
        ("lock_cpu_us", "lock_cpu", 1e6),
        ("stock_cpu_us", "stock_cpu", 1e6),
        ("web_cpu_us", "web_cpu", 1e6),
    ):
        row[name] = median(turn[figure] * unit / turn["sold_by_server"] for turn in sold)
    row["rounds"] = len(good)
    row["failures"] = [turn["failed"] for turn in turns if "failed" in turn]
    row["first_error"] = next((turn["first_error"] for turn in good if turn["first_error"]), "")
    return row


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Return a row as the tables show it."""
    servers = row["nodes"] > 0
    return (
        row["contestant"],
        str(row["nodes"]) if servers else "-",
        _number(row["requests_per_second"]),
        _number(row["sales_per_second"]),
        _ms(row["p50"]),
        _ms(row["p99"]),
        _number(row["timeouts"]),
        _number(row["refused"]),
        _number(row["failed_requests"]),
        _number(row["oversold"]),
        _number(row["commands"] if servers else None),
        _number(row["commands_busiest"] if servers else None),
        _number(row["lock_cpu_us"] if servers else None),
        _number(row["web_cpu_us"]),
    )


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Return the bars of each sale, or none if ours did not take part."""
    found = []
    for sale in dict.fromkeys(row["sale"] for row in rows):
        mine = [row for row in rows if row["sale"] == sale]
        ours = next((row for row in mine if row["contestant"] == OURS.name), None)
        if ours is None:
            continue
        pollers = [row for row in mine if row["polls"] and row["sales_per_second"]]
        found += _against(sale, ours, "best", pollers)
        # A lock on one node does a fifth of the work and has no majority. So the locks on five
        # nodes are compared too.
        found += _against(
            sale,
            ours,
            "best on five nodes",
            [row for row in pollers if row["nodes"] == ours["nodes"]],
        )
        found.append(at_most(f"{sale}: oversold, ours", ours["oversold"], 0))
        found.append(at_most(f"{sale}: timeouts, ours", ours["timeouts"], 0))
        found.append(at_most(f"{sale}: refused and failed, ours", _trouble(ours), 0))
    return found


def ceilings(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a sentence for each sale about the limit that the web server and the stock set.

    A lock cannot exceed the best polling lock by more than this ratio.
    """
    found = []
    for sale in dict.fromkeys(row["sale"] for row in rows):
        mine = [row for row in rows if row["sale"] == sale and row["sales_per_second"]]
        pollers = [row for row in mine if row["polls"]]
        ways = ((ALL[0], "without any lock"), (ONE_BY_ONE, "with `asyncio.Lock` in one worker,"))
        for contestant, how in ways:
            free = next((row for row in mine if row["contestant"] == contestant.name), None)
            if free is not None and pollers:
                ratio = free["sales_per_second"] / _best(pollers)["sales_per_second"]
                found.append(
                    f"{sale}: {how} the shop sells {ratio:.1f} times as much as with the best "
                    "polling lock"
                )
    return found


def _best(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return max(rows, key=lambda row: float(row["sales_per_second"]))


def _against(sale: str, ours: dict[str, Any], whom: str, others: list[dict[str, Any]]) -> list[Bar]:
    if not others:
        return []
    best = _best(others)
    name = f"{best['contestant']} ({whom})"
    speed, commands = _ratio(ours, best, "sales_per_second"), _ratio(ours, best, "commands")
    return [
        at_least(f"{sale}: sales/s, ours / {name}", speed, FASTER),
        at_most(f"{sale}: commands/sale, ours / {name}", commands, FEWER),
    ]


def _ratio(ours: dict[str, Any], theirs: dict[str, Any], figure: str) -> float | None:
    if not ours[figure] or not theirs[figure]:
        return None
    return float(ours[figure]) / float(theirs[figure])


def _trouble(row: dict[str, Any]) -> float | None:
    return None if row["refused"] is None else float(row["refused"]) + float(row["failed_requests"])


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    value = seconds * 1e3
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
