"""The public API has the types that users build on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.coverage import untraced

ROOT = Path(__file__).parents[2]


@pytest.mark.once
def test_the_public_api_has_the_promised_types() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "tests/typing/api.py"]
    told = subprocess.run(command, cwd=ROOT, env=untraced(), capture_output=True, text=True, timeout=55)
    assert told.returncode == 0, told.stdout + told.stderr
