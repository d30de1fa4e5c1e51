"""The files and methods that docs/code-map.md names exist, in one another's company."""

from __future__ import annotations

import ast
import re
from pathlib import Path

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


def test_the_files_that_the_map_names_exist() -> None:
    assert PATHS
    assert [path for path in PATHS if not place(path).exists()] == []


def test_the_methods_that_a_step_names_are_in_the_files_of_this_step() -> None:
    assert STEPS
    for step in STEPS:
        files = [place(word) for word in re.findall(r"`([\w/]+\.py)`", step)]
        known = set().union(*map(methods, files))
        assert set(re.findall(r"`([A-Z]\w+\.\w+)`", step)) - known == set(), step


def test_the_map_follows_four_calls() -> None:
    assert len(PATHS) > 60
    assert len(STEPS) >= 20
