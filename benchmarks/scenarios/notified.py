"""Measure the time until a body is cancelled after its lock was deleted.

Only ours runs, because no other Python library notifies a holder of the loss.
"""

from __future__ import annotations

from typing import Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import Client
from benchmarks.outcome import Outcome, Settings, at_least, at_most
from benchmarks.process import Driver, DriverFailed

__all__ = ["run"]

_DRIVER: Final = Client("ours", "notified_ours.py")
_LIMIT_MS: Final = 5.0
_SAMPLES: Final = 8
_WAYS: Final = {"deleted": "all five keys deleted", "flushed": "FLUSHALL on three of five"}


def run(settings: Settings) -> Outcome:
    """Delete the keys of held locks, and measure the time until their bodies are cancelled."""
    outcome = Outcome(
        "Notice of a lost lock to its holder, five nodes",
        ("what happens", "samples", "p50 ms", "p99 ms", "lives"),
    )
    delays: dict[str, list[float]] = {way: [] for way in _WAYS}
    lived = of = 0
    for number in range(settings.rounds):
        settings.say(f"notified: round {number + 1}/{settings.rounds}")
        with LocalNodes(5) as nodes:
            task = {"urls": nodes.urls, "samples": _SAMPLES}
            try:
                with Driver(_DRIVER.command(), _DRIVER.variables(), task) as driver:
                    driver.ready()
                    figures = driver.phase(3.0 * _SAMPLES)
            except DriverFailed as failure:
                outcome.raw.append({"round": number, "failed": str(failure)})
                outcome.notes.append(str(failure))
                continue
        outcome.raw.append({"round": number} | figures)
        lived, of = lived + figures["lived"], of + figures["of"]
        for way in _WAYS:
            delays[way] += figures[way]
    for way, described in _WAYS.items():
        ordered = sorted(delays[way])
        summary: dict[str, Any] = {"way": way, "samples": len(ordered), "p50": None, "p99": None}
        if ordered:
            summary["p50"] = ordered[(len(ordered) - 1) // 2] * 1e3
            summary["p99"] = ordered[round((len(ordered) - 1) * 0.99)] * 1e3
        outcome.medians.append(summary)
        shown = [
            "-" if summary[name] is None else f"{summary[name]:.3f}" for name in ("p50", "p99")
        ]
        outcome.rows.append((described, str(len(ordered)), *shown, "-"))
        outcome.bars.append(
            at_most(f"{described}: body cancelled after, p99, ms", summary["p99"], _LIMIT_MS)
        )
    share = lived / of if of else None
    outcome.medians.append({"way": "two flushed", "samples": of, "lived": share})
    outcome.rows.append(("FLUSHALL on two of five", str(of), "-", "-", f"{lived} of {of}"))
    outcome.bars.append(at_least("FLUSHALL on two of five: share of leases that live", share, 1.0))
    return outcome
