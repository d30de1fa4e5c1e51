"""Without their arguments, the examples say what they need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import EXAMPLES


@pytest.mark.once
@pytest.mark.parametrize("name", ["api_limit", "cron_recorded", "fenced_sql", "id_generator", "leader", "worker"])
def test_without_arguments_an_example_says_how_to_run_it(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 1
    assert told.stderr.startswith(f"usage: {name}.py ")
    assert told.stderr.count("\n") == 1
