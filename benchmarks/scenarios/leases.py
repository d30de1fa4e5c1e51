"""Measure the renewal of 10,000 leases: CPU time, event loop stalls and connections.

The time to acquire the leases does not count.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import OURS
from benchmarks.outcome import Outcome, Settings, at_least, at_most, median
from benchmarks.process import Driver, DriverFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.outcome import Bar

__all__ = ["run"]

_LEASES: Final = 10_000
_TTL: Final = 5.0
_CPU_SHARE: Final = 0.045
_STALL_MS: Final = 20.0
_DRIVERS: Final = Path(__file__).parents[1] / "drivers"
_HOLDERS: Final = {"ours": "hold_ours.py", "raw batching": "hold_floor.py"}


def run(settings: Settings) -> Outcome:
    """Hold the leases with the library and with the floor, in turns."""
    outcome = Outcome(
        f"{_LEASES:,} leases kept alive, ttl {_TTL:.0f} s, renewed at a third of it, five nodes",
        (
            "client",
            "CPU % of a core",
            "longest stall ms",
            "most CPU in one gap ms",
            "connections per node",
            "valid",
            "keys per node",
        ),
    )
    for number in range(settings.rounds):
        for name, driver in _HOLDERS.items():
            settings.say(f"leases: round {number + 1}/{settings.rounds}, {name}")
            about: dict[str, Any] = {"round": number, "client": name}
            try:
                row = about | _held(settings, driver)
                outcome.raw.append(row)
                if lost := row["probed"]["lost"]:
                    outcome.notes.append(f"{name}, round {number + 1}: lost {lost}")
            except DriverFailed as failure:
                outcome.raw.append(about | {"failed": str(failure)})
                outcome.notes.append(f"{name}: {failure}")
    for name in _HOLDERS:
        summary = _medians(
            name, [row for row in outcome.raw if row["client"] == name and "failed" not in row]
        )
        outcome.medians.append(summary)
        outcome.rows.append(_row(summary))
    outcome.bars.extend(_bars(outcome.medians[0]))
    return outcome


def _held(settings: Settings, driver_file: str) -> dict[str, Any]:
    # After five seconds every lease has been renewed three times, and the renewals are spread.
    settle, seconds, probe = (
        settings.seconds(5.0, 2.0),
        settings.seconds(20.0, 5.0),
        settings.seconds(10.0, 4.0),
    )
    with LocalNodes(5) as nodes:
        task = {
            "urls": nodes.urls,
            "leases": _LEASES,
            "ttl": _TTL,
            "settle": settle,
            "seconds": seconds,
            "probe_seconds": probe,
        }
        with Driver(
            [sys.executable, str(_DRIVERS / driver_file)], OURS.variables(), task
        ) as driver:
            ready = driver.ready()
            steady = driver.phase(settle + seconds)
            connections, keys = _seen_by(nodes)
            probed = driver.phase(probe)
    return {
        "ready": ready,
        "steady": steady,
        "probed": probed,
        "connections": connections,
        "keys": keys,
    }


def _seen_by(nodes: LocalNodes) -> tuple[list[int], list[int]]:
    """Return the number of connections and keys of each node.

    The connection that asks does not count.
    """
    connections, keys = [], []
    for node in nodes:
        lines = node.command("CLIENT", "LIST").decode().splitlines()
        connections.append(sum("cmd=client" not in line for line in lines if line))
        keys.append(int(node.command("DBSIZE")))
    return connections, keys


def _medians(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "client": name,
        "cpu_share": median(row["steady"]["cpu_share"] for row in rows),
        # A median would hide a round with a long stall.
        "longest_stall": max((row["probed"]["longest_stall"] for row in rows), default=None),
        "longest_busy": max((row["probed"]["longest_busy"] for row in rows), default=None),
        "connections": max((max(row["connections"]) for row in rows), default=None),
        "valid": min(
            (min(row["steady"]["valid"], row["probed"]["valid"]) for row in rows), default=None
        ),
        "keys": min((min(row["keys"]) for row in rows), default=None),
    }


def _row(summary: dict[str, Any]) -> tuple[str, ...]:
    def shown(figure: str, factor: float, pattern: str) -> str:
        value = summary[figure]
        return "-" if value is None else pattern.format(value * factor)

    return (
        summary["client"],
        shown("cpu_share", 100, "{:.2f}"),
        shown("longest_stall", 1e3, "{:.1f}"),
        shown("longest_busy", 1e3, "{:.1f}"),
        shown("connections", 1, "{:d}"),
        shown("valid", 1, "{:,d}"),
        shown("keys", 1, "{:,d}"),
    )


def _bars(ours: dict[str, Any]) -> Iterator[Bar]:
    share, stall = ours["cpu_share"], ours["longest_stall"]
    percent = None if share is None else share * 100
    yield at_most("10,000 leases kept alive: CPU, % of one core", percent, _CPU_SHARE * 100)
    yield at_most(
        "10,000 leases: longest event-loop stall, ms",
        None if stall is None else stall * 1e3,
        _STALL_MS,
    )
    yield at_most("10,000 leases: connections per node", ours["connections"], 1)
    yield at_least("10,000 leases: valid at the end", ours["valid"], _LEASES)
