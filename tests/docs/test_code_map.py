"""The files and methods that docs/code-map.md names exist, in one another's company."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "code-map.md").read_text(encoding="utf-8")
WORDS = re.findall(r"`([^`\n]+)`", TEXT)
PATHS = sorted({word for word in WORDS if re.search(r"\.(py|lua)$|/$", word)})
STEPS = [step for step in re.split(r"^(?:\d+\. |\n)", TEXT, flags=re.MULTILINE) if re.search(r"`[A-Z]\w+\.\w+`", step)]


def place(path: str) -> Path:
    """A path of the page: from the root of the repository, or in the package."""
    return ROOT / path if path.startswith(("tests/", "aioredlock_ng/")) else ROOT / "aioredlock_ng" / path


def methods(path: Path) -> set[str]:
    """The methods of a file, with their classes."""
    classes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {f"{node.name}.{part.name}" for node in classes for part in node.body if isinstance(part, functions)}


@pytest.mark.parametrize("path", PATHS)
def test_a_file_that_the_map_names_exists(path: str) -> None:
    assert place(path).exists()


@pytest.mark.parametrize("step", STEPS, ids=[step.split("`")[1] for step in STEPS])
def test_a_method_that_a_step_names_is_in_a_file_of_this_step(step: str) -> None:
    files = [place(word) for word in re.findall(r"`([\w/]+\.py)`", step)]
    known = set().union(*map(methods, files))
    assert set(re.findall(r"`([A-Z]\w+\.\w+)`", step)) <= known


def test_the_map_follows_four_calls() -> None:
    assert len(PATHS) > 60
    assert len(STEPS) >= 20
