"""Measure the time until a waiter runs after the lock of another client ends.

The lock is released by redis-py, deleted by redis-cli, or expires.
"""

from __future__ import annotations

import shutil
import statistics
from typing import Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import Client
from benchmarks.outcome import Outcome, Settings, at_most
from benchmarks.process import Driver, DriverFailed

__all__ = ["run"]

_DRIVERS: Final = {
    "ours": Client("ours", "wakeup_ours.py"),
    "floor": Client("floor", "wakeup_floor.py"),
}
_WAYS: Final = {
    "redis-py": ("released by redis-py's own Lock", 1.0),
    "redis-cli": ("deleted through redis-cli", 1.0),
    "expiry": ("left by a killed holder, after its expiry", 120.0),
}


def run(settings: Settings) -> Outcome:
    """Wait for locks that end in each way, with ours and with the floor, in turns."""
    outcome = Outcome(
        "Waking up, one waiter, five nodes",
        ("client", "lock", "samples", "p50 ms", "p99 ms", "longest ms"),
    )
    clients = [client.name for client in settings.clients if client.name in _DRIVERS]
    delays: dict[str, dict[str, list[float]]] = {
        client: {way: [] for way in _WAYS} for client in clients
    }
    cli = shutil.which("redis-cli") or shutil.which("valkey-cli") or ""
    for number in range(settings.rounds):
        for client in clients:
            settings.say(f"wakeup: round {number + 1}/{settings.rounds}, {client}")
            driver = _DRIVERS[client]
            with LocalNodes(5) as nodes:
                task = {
                    "urls": nodes.urls,
                    "samples": 30,
                    "left": 10 if client == "ours" else 0,
                    "cli": cli,
                }
                try:
                    with Driver(driver.command(), driver.variables(), task) as running:
                        running.ready()
                        figures = running.phase(10.0)
                except DriverFailed as failure:
                    outcome.raw.append({"round": number, "client": client, "failed": str(failure)})
                    outcome.notes.append(f"{client}: {failure}")
                    continue
            outcome.raw.append({"round": number, "client": client} | figures)
            for way, found in figures.items():
                delays[client][way] += found
    for client in clients:
        for way, (told, limit) in _WAYS.items():
            _summarise(outcome, client, way, sorted(delays[client][way]), told, limit)
    outcome.notes.append(
        "redis-py and redis-cli: from the call of the third deletion (by another process), for "
        "then a majority may be free"
    )
    outcome.notes.append("expiry: from the instant when a majority of the keys had expired")
    outcome.notes.append(
        "floor: no lock library, it asks all nodes once three have told it; "
        "what this machine allows"
    )
    if not cli:
        outcome.notes.append(
            "there is no redis-cli on this machine, so nothing was deleted through it"
        )
    return outcome


def _summarise(
    outcome: Outcome, client: str, way: str, ordered: list[float], told: str, limit: float
) -> None:
    summary: dict[str, Any] = {
        "client": client,
        "way": way,
        "samples": len(ordered),
        "p50": None,
        "p99": None,
        "longest": None,
    }
    if ordered:
        summary["p50"] = statistics.median(ordered) * 1e3
        summary["p99"] = ordered[int((len(ordered) - 1) * 0.99)] * 1e3
        summary["longest"] = ordered[-1] * 1e3
    elif client != "ours":
        return
    outcome.medians.append(summary)
    shown = [
        "-" if summary[name] is None else f"{summary[name]:.3f}"
        for name in ("p50", "p99", "longest")
    ]
    outcome.rows.append((client, told, str(len(ordered)), *shown))
    if client == "ours" and (ordered or way != "redis-cli"):
        outcome.bars.append(
            at_most(f"waiter runs after a lock was {told}: p50, ms", summary["p50"], limit)
        )
