"""The environments of the real libraries, made one at a time by `benchmarks.environments`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchmarks.clients import ALL, PYTHON_REDIS_LOCK
from benchmarks.environments import python_with

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["python_of", "variables"]

REQUIREMENTS = {client.name: client.requirements for client in (*ALL, PYTHON_REDIS_LOCK)} | {
    "redlock-py": ("redlock-py==1.0.8", "redis==8.1.0", "hiredis==3.5.0")
}


def python_of(library: str) -> Path:
    """Return the interpreter of a library's environment."""
    return python_with(library, REQUIREMENTS[library])


def variables() -> dict[str, str]:
    """Return the environment variables for it: nothing leads to the checkout."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
