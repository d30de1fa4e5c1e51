"""Measure the memory of our process under load while a node hangs for a minute."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.clients import OURS
from benchmarks.outcome import Outcome, Settings, at_most
from benchmarks.process import Driver

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run"]

_COROUTINES: Final = 20
_SETTLED_SECONDS: Final = 10.0
_GROWTH_MB: Final = 10.0
_SAMPLES_PER_SECOND: Final = 4


def run(settings: Settings) -> Outcome:
    """Hang one node under a closed loop, and sample the resident memory from outside."""
    seconds = settings.seconds(60.0, 12.0)
    settled = settings.seconds(_SETTLED_SECONDS, 3.0)
    outcome = Outcome(
        (
            f"Memory of our process while one of five nodes hangs for {seconds:.0f} s, "
            f"{_COROUTINES} coroutines"
        ),
        (
            "cycles",
            "errors",
            "MB healthy",
            f"MB after {settled:.0f} s",
            "MB at its highest",
            "grown MB",
        ),
    )
    settings.say(f"memory: one node hung for {seconds:.0f} s under load")
    # With `record` the lists of the loop would grow as well.
    healthy_seconds = settings.seconds(3.0, 1.0)
    phases = [
        {"name": "healthy", "seconds": healthy_seconds, "record": False},
        {"name": "hung", "seconds": seconds, "record": False, "warm": False},
    ]
    with LocalNodes(5) as nodes:
        task = {"urls": nodes.urls, "coroutines": _COROUTINES, "ttl": 10.0, "phases": phases}
        with Driver(OURS.command(), OURS.variables(), task) as driver:
            pid = driver.ready()["pid"]
            driver.phase(healthy_seconds)
            healthy = _resident_bytes(pid)
            nodes.pause(0)
            driver.begin()
            samples = _sampled(pid, seconds)
            figures = driver.line(seconds)
    grown = _grown(samples, settled)
    outcome.raw.append({"healthy_rss": healthy, "samples": samples, "figures": figures})
    after = next(size for at, size in samples if at >= settled)
    summary: dict[str, Any] = {
        "cycles": figures["cycles"],
        "errors": figures["errors"] + figures["stuck"],
        "mb_healthy": healthy / 1e6,
        "mb_settled": after / 1e6,
        "mb_highest": max(size for _, size in samples) / 1e6,
        "mb_grown": grown / 1e6,
    }
    outcome.medians.append(summary)
    outcome.rows.append(
        tuple(
            f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
            for value in summary.values()
        )
    )
    text = f"memory grown after the first {settled:.0f} of {seconds:.0f} s with a hung node, MB"
    outcome.bars.append(at_most(text, summary["mb_grown"], _GROWTH_MB))
    outcome.bars.append(
        at_most("acquires and releases that failed or hung meanwhile", float(summary["errors"]), 0)
    )
    if figures["first_error"]:
        outcome.notes.append(f"ours: {figures['first_error']}")
    return outcome


def _sampled(pid: int, seconds: float) -> list[tuple[float, int]]:
    started = time.monotonic()
    samples = []
    while (at := time.monotonic() - started) < seconds:
        samples.append((round(at, 3), _resident_bytes(pid)))
        time.sleep(1 / _SAMPLES_PER_SECOND)
    return samples


def _resident_bytes(pid: int) -> int:
    try:
        words = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except FileNotFoundError:
        # macOS has no /proc.
        done = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(pid)], check=True, capture_output=True, text=True
        )
        return int(done.stdout) * 1024
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE")


def _grown(samples: Sequence[tuple[float, int]], settled: float) -> int:
    """Return the growth from the sample at `settled` seconds to the highest later sample."""
    later = [size for at, size in samples if at >= settled]
    return max(later) - later[0]
