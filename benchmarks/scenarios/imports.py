"""What importing the package costs over importing redis.asyncio, in fresh processes; nothing is imported here."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from benchmarks.clients import OURS
from benchmarks.environments import ROOT
from benchmarks.outcome import Outcome, Settings, at_most, median

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run"]

_LIMIT_MS: Final = 60.0
_ROUNDS: Final = 15

_TIMED: Final = (
    "import time, sys\n"
    "wall, cpu = time.perf_counter(), time.process_time()\n"
    "import {module}\n"
    "print(time.perf_counter() - wall, time.process_time() - cpu, len(sys.modules))\n"
)
_MODULES: Final = ("redis.asyncio", "aioredlock_ng")


def run(settings: Settings) -> Outcome:
    """Import each in turn, after one round that writes the bytecode and warms the disk's cache."""
    rounds = max(_ROUNDS, settings.rounds)
    settings.say(f"imports: {rounds} rounds")
    outcome = Outcome("Importing, fresh process each time", ("module", "wall ms", "CPU ms", "modules loaded"))
    for module in _MODULES:
        _import_seconds(module)
    for number in range(rounds):
        for module in _MODULES:
            outcome.raw.append({"round": number, "module": module} | _import_seconds(module))
    for module in _MODULES:
        mine = [row for row in outcome.raw if row["module"] == module]
        summary = {"module": module} | {figure: median(row[figure] for row in mine) for figure in ("wall", "cpu", "modules")}
        outcome.medians.append(summary)
        outcome.rows.append(_row(module, summary))
    over = [_over(outcome.raw, number) for number in range(rounds)]
    outcome.bars.append(at_most("importing the package over importing redis.asyncio, ms", median(over), _LIMIT_MS))
    return outcome


def _import_seconds(module: str) -> dict[str, float]:
    command = [sys.executable, "-c", _TIMED.format(module=module)]
    done = subprocess.run(command, env=OURS.variables(), cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    wall, cpu, modules = done.stdout.split()
    return {"wall": float(wall), "cpu": float(cpu), "modules": int(modules)}


def _over(raw: Sequence[dict[str, Any]], number: int) -> float:
    wall = {row["module"]: row["wall"] for row in raw if row["round"] == number}
    return float(wall["aioredlock_ng"] - wall["redis.asyncio"]) * 1e3


def _row(module: str, summary: dict[str, Any]) -> tuple[str, ...]:
    return module, f"{summary['wall'] * 1e3:.1f}", f"{summary['cpu'] * 1e3:.1f}", f"{summary['modules']:.0f}"
