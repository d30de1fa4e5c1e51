"""A module has one purpose and at most 300 lines, and no modules need each other in a circle."""

from __future__ import annotations

from pathlib import Path

import pytest

import aioredlock_ng
from tests.structure.package import PACKAGE, Import, Module, modules

LINES = 300
ROOT = Path(aioredlock_ng.__file__).parent
NAMES = {module.name for module in modules()}


def needed(module: Module, found: Import) -> str:
    """Return the module of the package that an import reaches, or "" for another library."""
    whole = f"{found.module}.{found.name}"
    return (
        whole
        if whole in NAMES
        else found.module
        if found.module in NAMES and found.module != module.name
        else ""
    )


def circle(needs: dict[str, set[str]]) -> list[str]:
    """Return the names of a circle, the first one twice; an empty list if there is none."""
    done: set[str] = set()
    for start in sorted(needs):
        path: list[str] = []
        todo: list[tuple[str, bool]] = [(start, True)]
        while todo:
            name, enters = todo.pop()
            if not enters:
                done.add(path.pop())
                continue
            if name in path:
                return [*path[path.index(name) :], name]
            if name in done:
                continue
            path.append(name)
            todo.append((name, False))
            todo += [(other, True) for other in sorted(needs.get(name, ()))]
    return []


def test_no_module_and_no_script_is_longer_than_three_hundred_lines() -> None:
    files = [*ROOT.rglob("*.py"), *ROOT.rglob("*.lua")]
    counted = {
        path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in files
    }
    assert counted
    assert {str(path): lines for path, lines in counted.items() if lines > LINES} == {}


def test_no_modules_need_each_other_in_a_circle() -> None:
    """Imports for types count too. A reader of one file of a circle must read all of its files."""
    needs = {
        module.name: {needed(module, found) for found in module.imports()} - {""}
        for module in modules()
    }
    assert needs[f"{PACKAGE}.redlock"]
    assert circle(needs) == []


@pytest.mark.parametrize(
    ("needs", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ["b", "c", "b"]),
        ({"a": {"a"}}, ["a", "a"]),
    ],
    ids=["a line", "two ways", "a circle behind the start", "itself"],
)
def test_a_circle_is_found(needs: dict[str, set[str]], found: list[str]) -> None:
    assert circle(needs) == found
