"""Each class and function that docs/code-map.md names is in a file that the same step names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "code-map.md").read_text(encoding="utf-8")
WORDS = re.findall(r"`([^`\n]+)`", TEXT)
PATHS = sorted({word for word in WORDS if re.search(r"\.(py|lua)$|/$", word)})
NAME = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)?)`")
STEPS = [
    step
    for step in re.split(r"^(?:\d+\. |\n)", TEXT, flags=re.MULTILINE)
    if NAME.search(step) and not step.startswith("#")
]
ARGUMENTS = {"blocking_timeout", "ls", "min_hold", "step_down"}
"""Words of the page that are arguments or commands, and no names of code."""


def place(path: str) -> Path:
    """A path of the page: from the root of the repository, or in the package."""
    return (
        ROOT / path
        if path.startswith(("tests/", "aioredlock_ng/"))
        else ROOT / "aioredlock_ng" / path
    )


def names_in(source: str) -> set[str]:
    """The classes and functions of a file, and its methods with their classes."""
    body = ast.parse(source).body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    methods = {
        f"{node.name}.{part.name}"
        for node in classes
        for part in node.body
        if isinstance(part, functions)
    }
    return methods | {node.name for node in body if isinstance(node, (ast.ClassDef, *functions))}


def misplaced(step: str) -> set[str]:
    """The names of a step that none of its files defines."""
    files = [place(word) for word in re.findall(r"`([\w/]+\.py)`", step)]
    known = set().union(*(names_in(path.read_text(encoding="utf-8")) for path in files))
    found = {word for word in NAME.findall(step) if not word.endswith((".py", ".lua"))}
    return found - known - ARGUMENTS


def test_the_files_that_the_map_names_exist() -> None:
    assert PATHS
    assert [path for path in PATHS if not place(path).exists()] == []


def test_the_names_of_a_step_are_in_the_files_of_this_step() -> None:
    assert {step: wrong for step in STEPS if (wrong := misplaced(step))} == {}


@pytest.mark.parametrize(
    ("step", "wrong"),
    [
        ("`lock.py`: `Lock.acquire` asks.", set()),
        ("`lock.py`: `Lock.vanished` asks.", {"Lock.vanished"}),
        ("`lock.py`: `Body.lost` cancels.", {"Body.lost"}),
        ("`lock.py`: `is_decided` ends the round early.", {"is_decided"}),
        ("`_core/quorum.py`: `is_decided` ends the round early.", set()),
        ("`lock.py`: the `Lease` has a `min_hold`.", {"Lease"}),
    ],
)
def test_a_name_that_the_files_of_its_step_do_not_define_is_found(
    step: str, wrong: set[str]
) -> None:
    assert misplaced(step) == wrong


def test_the_map_follows_every_kind_of_call() -> None:
    assert len(PATHS) > 100
    assert len(STEPS) >= 60
