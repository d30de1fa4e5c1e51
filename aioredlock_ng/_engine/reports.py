"""Reports that nodes send without a request, and the parts of the engine that receive them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioredlock_ng._scripts.exclusive_kinds import MARKER_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.watcher import Watcher
    from aioredlock_ng._engine.trust.availability import Availability
    from aioredlock_ng._engine.trust.duplicates import DuplicateNodes
    from aioredlock_ng._engine.trust.guard_task import Guard
    from aioredlock_ng._engine.waiting.lines import Lines
    from aioredlock_ng.events import Event

__all__ = ["Reports"]


class Reports:
    """The `NodeListener` of a manager.

    Args:
        guard: Notified of changed markers and of new connections; None without a recovery guard.
        availability: Notified of new and lost connections.
        lines: Notified of messages to waiters, and of changed keys.
        watcher: Notified of changed keys.
        duplicates: Notified of connected nodes that hide their run id.
    """

    def __init__(
        self,
        context: Context,
        manager_id: bytes,
        guard: Guard | None,
        availability: Availability,
        lines: Lines,
        watcher: Watcher,
        duplicates: DuplicateNodes,
    ) -> None:
        self.manager_id = manager_id
        self._context = context
        self._guard = guard
        self._availability = availability
        self._lines = lines
        self._watcher = watcher
        self._duplicates = duplicates
        self._closed = False
        self._run_ids: dict[int, str] = {}
        self._onlookers: list[tuple[bytes, Callable[[], object]]] = []

    def stop(self) -> None:
        """Ignore messages and changed keys from now on."""
        self._closed = True

    def close(self) -> None:
        """Stop, and call all onlookers, because nothing else will end their waits."""
        self.stop()
        for _, changed in list(self._onlookers):
            changed()

    def invalidated(self, index: int, keys: list[bytes] | None) -> None:
        """Act on changes of tracked keys on node `index`.

        If `keys` is None, any key may have changed, or tracking was lost.
        """
        if not self._closed:
            if self._guard is not None and (keys is None or MARKER_KEY in keys):
                self._guard.hint(index if keys is None else None)
            if keys is None:
                self._availability.update()
            self._lines.changed(index, keys)
            self._watcher.changed(index, keys)
            for key, changed in list(self._onlookers):
                if keys is None or key in keys:
                    changed()

    def notified(self, index: int, message: bytes) -> None:
        if not self._closed and (forced := self._lines.notified(index, message)):
            self._watcher.doubt(forced)

    @contextmanager
    def onlooker(self, key: bytes, changed: Callable[[], object]) -> Iterator[None]:
        """Call `changed` when a node reports a change of the key, until the `with` block ends.

        The key must be tracked. A lost connection and the close of the manager count as changes,
        too.
        """
        onlooker = (key, changed)
        self._onlookers.append(onlooker)
        if self._closed:
            changed()
        try:
            yield
        finally:
            self._onlookers.remove(onlooker)

    def identify(self, index: int, run_id: str) -> str:
        """Record the run id of the server at node `index`. `run_id` is "" if it is unknown.

        Returns:
            The address of another node with this run id; "" if there is none. If there is one,
            nothing is recorded.
        """
        for other, known in self._run_ids.items():
            if run_id and known == run_id and other != index:
                return self._context.fleet.nodes[other].address
        self._run_ids[index] = run_id
        if self._guard is not None:
            self._guard.quarantine.connected(index)
        return ""

    def present(self, index: int, is_present: bool) -> None:
        """Record whether node `index` gets its commands through the outbox; see `Fleet`."""
        self._context.fleet.present(index, is_present)
        if is_present:
            # A connected node that hides its run id may be the same server as the new node. So each
            # of these nodes is probed.
            for other, node in enumerate(self._context.fleet.nodes):
                if node.ready and not node.state().run_id:
                    self._duplicates.suspect(other)

    def emit(self, event: Event) -> None:
        self._context.emit(event)
