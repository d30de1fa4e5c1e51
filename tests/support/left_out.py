"""Tests that need what this machine lacks are taken out of the run, which says how many and why; it
never looks itself.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["hear", "take_out", "told"]

_KEY = pytest.StashKey[dict[str, int]]()
_OUTPUT = "left_out"


def take_out(
    config: pytest.Config, items: list[pytest.Item], lacks: Callable[[pytest.Item], str]
) -> None:
    """Take out every test for which `lacks` names something, in words that follow "tests that
    need".
    """
    wants = [(item, lacks(item)) for item in items]
    needs = dict(Counter(need for _, need in wants if need))
    config.stash[_KEY] = needs
    # A worker's controller collects nothing itself.
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = needs
    if needs:
        config.hook.pytest_deselected(items=[item for item, need in wants if need])
        items[:] = [item for item, need in wants if not need]


def hear(config: pytest.Config, output: dict[str, Any]) -> None:
    """In the controller: keep what a worker has left out; each leaves out the same."""
    if needs := output.get(_OUTPUT):
        config.stash[_KEY] = needs


def told(config: pytest.Config) -> list[str]:
    """Say in a line what is left out, as far as it is known; in none when nothing is."""
    needs = config.stash.get(_KEY, {})
    counts = ", ".join(f"{need} ({count})" for need, count in needs.items())
    return [f"left out: tests that need {counts}"] if needs else []
