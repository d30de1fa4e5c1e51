from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioredlock_ng.sync import Redlock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.node_set import NodeSet


@pytest.fixture
def redlock(three_nodes: NodeSet) -> Iterator[Redlock]:
    with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:
        yield redlock


@pytest.fixture
def rival(three_nodes: NodeSet) -> Iterator[Redlock]:
    with Redlock(three_nodes.urls, node_timeout=1.0) as redlock:
        yield redlock
