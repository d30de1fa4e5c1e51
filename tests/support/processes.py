"""The environment of processes that tests start, where coverage is not to follow them; never how they are started."""

from __future__ import annotations

import os

__all__ = ["untraced"]


def untraced() -> dict[str, str]:
    """Return this process's environment without what has a Python started with it measure its coverage.

    For what is not our package, and for whoever runs lines of it that the tests run themselves: half of its time would be
    the tracer's.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith(("COV_CORE", "COVERAGE"))}
