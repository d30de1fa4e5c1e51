"""Measure imports in fresh processes, compared with redis.asyncio and an older commit."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.clients import OURS
from benchmarks.environments import ROOT, unpacked
from benchmarks.outcome import Outcome, Settings, at_most, median, paired_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run"]

_OVER_REDIS_AT_MOST: Final = 1.5
_ROUNDS: Final = 15

_BEFORE: Final = "fc20555"
"""The last commit before the queue on the nodes, semaphores, elections and threads."""
_LONGER_AT_MOST: Final = 1.0

_TIMED: Final = (
    "import time, sys\n"
    "wall, cpu = time.perf_counter(), time.process_time()\n"
    "{statement}\n"
    "print(time.perf_counter() - wall, time.process_time() - cpu, len(sys.modules))\n"
)
_IMPORT: Final = "import aioredlock_ng"
_MANAGER: Final = "from aioredlock_ng import Redlock; Redlock(['redis://127.0.0.1'])"
"""Code that makes a manager. The first manager imports redis-py as well."""

_REDIS, _OURS, _FIRST = "redis.asyncio", "aioredlock_ng", "aioredlock_ng and a manager"
_OLDER, _OLDER_FIRST = f"aioredlock_ng at {_BEFORE}", f"aioredlock_ng at {_BEFORE} and a manager"
_STATEMENTS: Final = {
    _REDIS: "import redis.asyncio",
    _OURS: _IMPORT,
    _FIRST: _MANAGER,
    _OLDER: _IMPORT,
    _OLDER_FIRST: _MANAGER,
}


def run(settings: Settings) -> Outcome:
    """Import each module in turn.

    An unmeasured round before writes the bytecode and fills the disk cache.
    """
    rounds = max(_ROUNDS, settings.rounds)
    settings.say(f"imports: {rounds} rounds")
    outcome = Outcome(
        "Importing, fresh process each time", ("module", "wall ms", "CPU ms", "modules loaded")
    )
    with tempfile.TemporaryDirectory() as folder:
        trees = dict.fromkeys((_REDIS, _OURS, _FIRST), ROOT)
        try:
            trees |= dict.fromkeys((_OLDER, _OLDER_FIRST), unpacked(_BEFORE, Path(folder)))
        except (OSError, subprocess.CalledProcessError):
            outcome.notes.append(
                f"commit {_BEFORE} is not in this checkout, so nothing was compared with it"
            )
        for case, tree in trees.items():
            _import_seconds(case, tree)
        for number in range(rounds):
            for case, tree in trees.items():
                outcome.raw.append({"round": number, "module": case} | _import_seconds(case, tree))
    for case in trees:
        mine = [row for row in outcome.raw if row["module"] == case]
        summary = {"module": case} | {
            figure: median(row[figure] for row in mine) for figure in ("wall", "cpu", "modules")
        }
        outcome.medians.append(summary)
        outcome.rows.append(_row(case, summary))
    # CPU time is compared, because another process may lengthen the wall time of one import.
    over = paired_ratio(*(_by_round(outcome.raw, case, "cpu") for case in (_FIRST, _REDIS)))
    outcome.bars.append(
        at_most(
            "CPU time of importing and making a manager / redis.asyncio's",
            over,
            _OVER_REDIS_AT_MOST,
        )
    )
    longer = paired_ratio(*(_by_round(outcome.raw, case, "cpu") for case in (_OURS, _OLDER)))
    outcome.bars.append(
        at_most(f"CPU time of importing the package / {_BEFORE}'s", longer, _LONGER_AT_MOST)
    )
    if _OLDER_FIRST in trees:
        longer = paired_ratio(
            *(_by_round(outcome.raw, case, "cpu") for case in (_FIRST, _OLDER_FIRST))
        )
        outcome.notes.append(
            "with a manager made, which imports redis-py: "
            f"{longer:.2f} times the CPU time of {_BEFORE}"
        )
    return outcome


def _import_seconds(case: str, tree: Path) -> dict[str, float]:
    command = [sys.executable, "-c", _TIMED.format(statement=_STATEMENTS[case])]
    variables = OURS.variables() | {"PYTHONPATH": str(tree)}
    done = subprocess.run(
        command, env=variables, cwd=tree, check=True, capture_output=True, text=True, timeout=60
    )
    wall, cpu, modules = done.stdout.split()
    return {"wall": float(wall), "cpu": float(cpu), "modules": int(modules)}


def _by_round(raw: Sequence[dict[str, Any]], module: str, figure: str) -> dict[int, float]:
    return {row["round"]: row[figure] for row in raw if row["module"] == module}


def _row(module: str, summary: dict[str, Any]) -> tuple[str, ...]:
    return (
        module,
        f"{summary['wall'] * 1e3:.1f}",
        f"{summary['cpu'] * 1e3:.1f}",
        f"{summary['modules']:.0f}",
    )
