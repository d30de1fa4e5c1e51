"""Managers by aioredlock's names, over the nodes of a test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng.compat.aioredlock import Aioredlock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# The built wheel is tested without its checkout, where the other libraries' environments and the
# page are.
collect_ignore = (
    []
    if (Path(__file__).parents[2] / "benchmarks").exists()
    else ["test_names.py", "test_page.py", "test_rollout.py"]
)


@pytest.fixture
async def manager_of() -> AsyncIterator[Callable[..., Aioredlock]]:
    """Make managers with these arguments; they are destroyed when the test ends."""
    made: list[Aioredlock] = []

    def make(*args: Any, **settings: Any) -> Aioredlock:
        # Most of its calls ask once. A busy machine may pause a server for two seconds.
        settings.setdefault("node_timeout", 3.0)
        with pytest.deprecated_call():
            made.append(Aioredlock(*args, **settings))
        return made[-1]

    yield make
    for manager in made:
        await manager.destroy()
