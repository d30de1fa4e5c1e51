"""Nodes that the environment names, and a manager of the test's own beside those of the servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Redlock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.node_set import NodeSet

# The built wheel is tested without its checkout.
collect_ignore = [] if (Path(__file__).parents[2] / "docs").exists() else ["test_pages.py"]


@pytest.fixture
def nodes(three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch) -> NodeSet:
    """Three nodes, named in the environment of this process and of those that it starts."""
    monkeypatch.setenv("AIOREDLOCK_NG_NODES", ",".join(three_nodes.urls))
    monkeypatch.setenv("AIOREDLOCK_NG_NODE_TIMEOUT", "2.5")
    # Longer than any test waits for keys to be gone: a key that is left behind must not go by
    # itself.
    monkeypatch.setenv("AIOREDLOCK_NG_TTL", "60")
    return three_nodes


@pytest.fixture
async def elsewhere(nodes: NodeSet) -> AsyncIterator[Redlock]:
    """A manager in no server: another process of the fleet."""
    async with Redlock(nodes.urls, node_timeout=2.5) as redlock:
        yield redlock
