"""Five containers for the tests of this folder, whatever the other tests' nodes run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.backends import DockerBackend
from tests.support.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.node_set import NodeSet


@pytest.fixture(scope="session")
def _containers() -> Iterator[Pool]:
    from tests.support.containers import remove_leftovers

    remove_leftovers()
    pool = Pool(DockerBackend)
    yield pool
    pool.close()


@pytest.fixture
def five_containers(_containers: Pool) -> Iterator[NodeSet]:
    with _containers.nodes(5) as nodes:
        yield nodes
