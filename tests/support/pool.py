"""Lends nodes to one test at a time. The nodes live for the whole run.

A test gets the nodes empty and running. After the test, all nodes run and answer again.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tests.support.backends import LocalBackend
from tests.support.node_set import NodeSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from tests.support.backends import Backend
    from tests.support.node_set import Node
    from tests.support.server_versions import ServerVersion

__all__ = ["Pool", "VersionPools"]


class Pool:
    """The nodes of one backend. A node is started when a test first needs it."""

    def __init__(self, choose: Callable[[], Backend]) -> None:
        self._choose = choose
        self._backend: Backend | None = None
        self._nodes: list[Node] = []

    @property
    def backend(self) -> Backend:
        """Return the backend on which the nodes run."""
        if self._backend is None:
            self._backend = self._choose()
        return self._backend

    @contextlib.contextmanager
    def nodes(self, count: int) -> Iterator[NodeSet]:
        """Lend the first `count` nodes."""
        if (missing := count - len(self._nodes)) > 0:
            self._nodes += self.backend.start(missing)
        lent = NodeSet(self._nodes[:count])
        lent.wipe()
        lent.found()
        try:
            yield lent
        finally:
            lent.restore()

    def close(self) -> None:
        """Stop the nodes that were started."""
        if self._backend is not None:
            self._backend.close()


class VersionPools:
    """A pool of local processes for each server version."""

    def __init__(self) -> None:
        self._pools: dict[ServerVersion, Pool] = {}

    def of(self, version: ServerVersion) -> Pool:
        """Return the pool of this version."""
        return self._pools.setdefault(version, Pool(lambda: LocalBackend(version.binary)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pool in self._pools.values():
            pool.close()
