"""How soon a waiter runs after others' locks end: released by redis-py, deleted by redis-cli, expired; ours only."""

from __future__ import annotations

import shutil
import statistics
from typing import Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import Client
from benchmarks.outcome import Outcome, Settings, at_most
from benchmarks.process import Driver, DriverFailed

__all__ = ["run"]

_DRIVER: Final = Client("ours", "wakeup_ours.py")
_WAYS: Final = {
    "redis-py": ("released by redis-py's own Lock", 1.0),
    "redis-cli": ("deleted through redis-cli", 1.0),
    "expiry": ("left by a killed holder, after its expiry", 120.0),
}


def run(settings: Settings) -> Outcome:
    """Wait for locks that end in each way."""
    outcome = Outcome("Waking up, one waiter, five nodes", ("lock", "samples", "p50 ms", "p99 ms", "longest ms"))
    delays: dict[str, list[float]] = {way: [] for way in _WAYS}
    cli = shutil.which("redis-cli") or shutil.which("valkey-cli") or ""
    for number in range(settings.rounds):
        settings.say(f"wakeup: round {number + 1}/{settings.rounds}")
        with LocalNodes(5) as nodes:
            task = {"urls": nodes.urls, "samples": 30, "left": 10, "cli": cli}
            try:
                with Driver(_DRIVER.command(), _DRIVER.variables(), task) as driver:
                    driver.ready()
                    figures = driver.phase(10.0)
            except DriverFailed as failure:
                outcome.raw.append({"round": number, "failed": str(failure)})
                outcome.notes.append(str(failure))
                continue
        outcome.raw.append({"round": number} | figures)
        for way, found in figures.items():
            delays[way] += found
    for way, (told, limit) in _WAYS.items():
        ordered = sorted(delays[way])
        summary: dict[str, Any] = {"way": way, "samples": len(ordered), "p50": None, "p99": None, "longest": None}
        if ordered:
            summary["p50"] = statistics.median(ordered) * 1e3
            summary["p99"] = ordered[int((len(ordered) - 1) * 0.99)] * 1e3
            summary["longest"] = ordered[-1] * 1e3
        outcome.medians.append(summary)
        shown = ["-" if summary[name] is None else f"{summary[name]:.3f}" for name in ("p50", "p99", "longest")]
        outcome.rows.append((told, str(len(ordered)), *shown))
        if ordered or way != "redis-cli":
            outcome.bars.append(at_most(f"waiter runs after a lock was {told}: p50, ms", summary["p50"], limit))
    outcome.notes.append(
        "redis-py: from the call of the third release; redis-cli: from the line typed into five of them at once"
    )
    outcome.notes.append("expiry: from the instant when a majority of the keys had expired")
    if not cli:
        outcome.notes.append("there is no redis-cli on this machine, so nothing was deleted through it")
    return outcome
