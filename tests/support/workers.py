"""Runs of the suite in several processes (`-n auto` of pytest-xdist).

This module chooses the number of worker processes, and passes their numbers of left-out tests to
the controller. Tests are not affected, because each process has nodes of its own.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tests.support import left_out
from tests.support.backends import given_urls

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "check",
    "is_shared",
    "pytest_deselected",
    "pytest_testnodedown",
    "pytest_xdist_auto_num_workers",
]

_MOST = 8
"""Largest number of worker processes. Each of them starts up to five nodes, and three of each
server version.
"""

_TAKEN_OUT = "taken_out"


class Options(Protocol):
    """The part of `pytest.Config` that this module uses."""

    def getoption(self, name: str, default: object = ...) -> Any:
        """Return an option's value."""


def is_shared(config: Options) -> bool:
    """True if this process gives the tests to worker processes."""
    return bool(config.getoption("numprocesses", None))


def check(config: Options) -> None:
    """Refuse to share nodes that are given by URL.

    Raises:
        pytest.UsageError: Several processes would flush the same nodes, because each test flushes
            its nodes.
    """
    if is_shared(config) and given_urls(config.getoption("--nodes")):
        raise pytest.UsageError(
            "several processes cannot share the nodes that are given by URL: each test flushes them"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: Options) -> int:
    """Return the number of worker processes: more than processors, because tests also wait.

    If the nodes are given by URL, return 0, because all workers would flush the same nodes. Tests
    of the quick tier wait as much as they compute. Many other tests start processes that compute.
    """
    if given_urls(config.getoption("--nodes")):
        return 0
    processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(_MOST, processors + (2 if config.getoption("--tier", None) == "quick" else 1))


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Record in a worker how many tests were taken out, because its controller is not notified."""
    output: dict[str, Any] | None = (
        getattr(items[0].config, "workeroutput", None) if items else None
    )
    if output is not None:
        output[_TAKEN_OUT] = output.get(_TAKEN_OUT, 0) + len(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over from a worker the number of left-out tests, and the reasons, for the controller's
    last lines.

    All workers leave out the same tests.
    """
    reporter = node.config.pluginmanager.get_plugin("terminalreporter")
    output = getattr(node, "workeroutput", {})
    left_out.receive(node.config, output)
    taken_out = output.get(_TAKEN_OUT, 0)
    if reporter is not None and taken_out and "deselected" not in reporter.stats:
        # Other plugins read attributes of these objects.
        reporter.stats["deselected"] = [SimpleNamespace()] * taken_out
