"""The command line on nodes of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import Cli

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet


@pytest.fixture
def cli(three_nodes: NodeSet) -> Cli:
    """The command line on three nodes."""
    three_nodes.found()
    return Cli(three_nodes.urls)
