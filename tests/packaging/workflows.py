"""The workflows of the repository as data, and their commands with the values of each matrix."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ROOT", "WORKFLOWS", "commands", "jobs", "load", "steps"]

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def load(path: Path) -> dict[Any, Any]:
    """Read a YAML file. YAML 1.1 reads the key `on` of a workflow as True."""
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each job of each workflow, as "file/job"."""
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            yield f"{path.stem}/{name}", job


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each step of each job."""
    for name, job in jobs():
        for step in job.get("steps", ()):
            yield name, step


def commands() -> Iterator[tuple[str, str]]:
    """Yield each line of each `run`, once for each combination of its job's matrix."""
    for name, job in jobs():
        for step in job.get("steps", ()):
            for line in step.get("run", "").splitlines():
                for values in _combinations(job):
                    filled = line
                    for variable, value in step.get("env", {}).items():
                        filled = filled.replace(f"${variable}", _filled(str(value), values))
                    yield name, filled


def _filled(text: str, values: dict[str, Any]) -> str:
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found: str(values[found[1]]), text)


def _combinations(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    matrix = job.get("strategy", {}).get("matrix", {})
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))
