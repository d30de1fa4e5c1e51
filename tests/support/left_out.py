"""Leaves out the tests that need a program or service which this machine lacks.

The output of the run says how many tests were left out, and why. The caller finds out which things
are missing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["receive", "summary", "take_out"]

_KEY = pytest.StashKey[dict[str, int]]()
_OUTPUT = "left_out"


def take_out(
    config: pytest.Config, items: list[pytest.Item], lacks: Callable[[pytest.Item], str]
) -> None:
    """Leave out every test for which `lacks` returns a text.

    The text names the missing thing, and follows the words "tests that need".
    """
    wants = [(item, lacks(item)) for item in items]
    needs = dict(Counter(need for _, need in wants if need))
    config.stash[_KEY] = needs
    # The controller of pytest-xdist collects no tests. So each worker sends its numbers to the
    # controller.
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = needs
    if needs:
        config.hook.pytest_deselected(items=[item for item, need in wants if need])
        items[:] = [item for item, need in wants if not need]


def receive(config: pytest.Config, output: dict[str, Any]) -> None:
    """Store the numbers of a worker in the controller. All workers have the same numbers."""
    if needs := output.get(_OUTPUT):
        config.stash[_KEY] = needs


def summary(config: pytest.Config) -> list[str]:
    """Return a line about the tests that were left out, or no line if there are none."""
    needs = config.stash.get(_KEY, {})
    counts = ", ".join(f"{need} ({count})" for need, count in needs.items())
    return [f"left out: tests that need {counts}"] if needs else []
