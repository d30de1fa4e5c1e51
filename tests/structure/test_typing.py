"""The public API has the types that users build on."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import aioredlock_ng
from tests.support.coverage import untraced

ROOT = Path(__file__).parents[2]
API = ROOT / "tests" / "typing" / "api.py"


# `make check` reads the same file with the same checker.
@pytest.mark.once
@pytest.mark.slow
def test_the_public_api_has_the_promised_types() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", str(API)]
    told = subprocess.run(
        command, cwd=ROOT, env=untraced(), capture_output=True, text=True, timeout=55
    )
    assert told.returncode == 0, told.stdout + told.stderr


def test_every_exported_name_is_used_in_the_typed_calls() -> None:
    tree = ast.parse(API.read_text(encoding="utf-8"))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert sorted(set(aioredlock_ng.__all__) - {"__version__"} - used) == []
