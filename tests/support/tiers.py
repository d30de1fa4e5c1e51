"""Divides the suite between `make test` and the rest of `make test-all`. CONTRIBUTING.md has the times of both."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["QUICK_FOLDERS", "SPARSE", "TIERS", "ends", "is_quick", "pytest_itemcollected", "take_out"]

TIERS = ("quick", "rest")

QUICK_FOLDERS = frozenset(
    {
        "containers",
        "contract",
        "election",
        "engine",
        "examples",
        "fencing",
        "integration",
        "integrations",
        "structure",
        "sync",
        "unit",
    }
)
"""Folders of tests that `make test` runs. The others start commands, long runs or environments of their own."""

SPARSE = {
    "integration/test_secrets.py::test_a_password_that_a_server_quotes_is_shown_nowhere": 3,
    "engine/test_cancellation.py::test_interrupted_at_any_instant_nothing_is_left_and_the_next_one_gets_it": 5,
    "engine/test_overlapping.py::test_neither_sets_of_names_nor_single_names_are_starved": 7,
    "threaded/test_cancellation.py::test_a_threaded_call_that_is_interrupted_at_any_instant_leaves_nothing": 11,
    "engine/test_sleeping_beside.py::test_no_waiter_sleeps_beside_a_free_lock": 4,
}
"""Tests with many cases. `make test` runs one case in so many.

A number with no divisor in common with the lengths of crossed lists of cases leaves cases of each item of each list.
"""

_TESTS = Path(__file__).parents[1]

_COLLECTED = pytest.StashKey[Counter[str]]()


def is_quick(path: Path, marks: Iterable[str]) -> bool:
    """Return whether `make test` runs a test of this file that has these marks."""
    return path.relative_to(_TESTS).parts[0] in QUICK_FOLDERS and not {"full", "slow"} & set(marks)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all but some cases of the tests in `SPARSE` as `full`."""
    name = f"{item.path.relative_to(_TESTS).as_posix()}::{getattr(item, 'originalname', '')}"
    if name in SPARSE:
        collected = item.config.stash.setdefault(_COLLECTED, Counter())
        if collected[name] % SPARSE[name]:
            item.add_marker("full")
        collected[name] += 1


def take_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the tests of the other tier, if `--tier` names one."""
    tier = config.getoption("--tier")
    if tier is None:
        return
    others = [item for item in items if _tier_of(item) != tier]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _tier_of(item) == tier]


def ends(cases: Sequence[object]) -> list[object]:
    """Return the cases as parameters of a test, all but the first and the last of them marked `full`."""
    return [case if place in (0, len(cases) - 1) else _full(case) for place, case in enumerate(cases)]


def _full(case: Any) -> object:
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.full])
    return pytest.param(case, marks=pytest.mark.full)


def _tier_of(item: pytest.Item) -> str:
    return "quick" if is_quick(item.path, (mark.name for mark in item.iter_markers())) else "rest"
