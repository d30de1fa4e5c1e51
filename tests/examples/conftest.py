"""The examples read the nodes from the environment, as a deployment would give them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

EXAMPLES = Path(__file__).parents[2] / "examples"

# The built wheel is tested without its checkout.
collect_ignore_glob = [] if EXAMPLES.exists() else ["test_*.py"]


@pytest.fixture
def nodes(three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch) -> NodeSet:
    """Three nodes, named in the environment of this process and of those that it starts."""
    monkeypatch.setenv("AIOREDLOCK_NG_NODES", ",".join(three_nodes.urls))
    # A busy machine may pause a server for two seconds.
    monkeypatch.setenv("AIOREDLOCK_NG_NODE_TIMEOUT", "3")
    return three_nodes
