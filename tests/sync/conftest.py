from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioredlock_ng.sync import Redlock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.node_set import NodeSet

# A call that asks once fails if its process or a majority is paused for longer than this.
NODE_TIMEOUT = 2.5


@pytest.fixture
def redlock(three_nodes: NodeSet) -> Iterator[Redlock]:
    with Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT) as redlock:
        yield redlock


@pytest.fixture
def rival(three_nodes: NodeSet) -> Iterator[Redlock]:
    with Redlock(three_nodes.urls, node_timeout=NODE_TIMEOUT) as redlock:
        yield redlock
