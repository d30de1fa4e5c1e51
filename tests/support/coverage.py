"""Excludes some tests and child processes from the measurement of coverage.

These tests compute for a long time. Other tests run the same lines of the package.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["pytest_runtest_call", "untraced"]

_TESTS = Path(__file__).parents[1]
_COMPUTING = [
    _TESTS / name
    for name in (
        "chaos",
        "docs",
        "engine/test_cancellation.py",
        "flash_sale",
        "model",
        "scaling",
        "simulation",
        "threaded/test_same_contract.py",
        "threaded/test_same_election.py",
        "threaded/test_same_min_hold.py",
        "threaded/test_same_once.py",
        "threaded/test_same_rwlock.py",
    )
]

_CROWDS = {
    "test_no_waiter_sleeps_beside_a_free_lock",
    "test_the_cost_and_the_shares_of_a_crowd_do_not_depend_on_its_size",
}
"""Tests that take many seconds, in files whose other tests are short."""

_TRACED = "[cancel-again-and-again-"
"""Part of the names of the cancellation tests that are measured.

Only these tests run the code that follows an earlier cancellation in the same tick.
"""


def untraced(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return an environment in which a new Python process does not measure its coverage.

    The result is a copy of `environ`, without the variables of coverage.
    """
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(("COV_CORE", "COVERAGE"))
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run a test without the tracer if the test computes for a long time.

    The marker of pytest-cov is not enough. In a worker of pytest-xdist, this marker ends one
    tracer, and the tracer that coverage started with the process goes on.
    """
    tracer = sys.gettrace()
    measured = item.config.pluginmanager.hasplugin("_cov")
    computing = getattr(item, "originalname", "") in _CROWDS or (
        any(item.path.is_relative_to(path) for path in _COMPUTING) and _TRACED not in item.name
    )
    if tracer is None or not measured or not computing:
        return (yield)
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)
