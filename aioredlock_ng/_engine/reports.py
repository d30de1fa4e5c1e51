"""What the nodes report without being asked, brought to the parts of the engine that need it; it asks nothing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioredlock_ng._scripts.kinds import MARKER_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioredlock_ng._engine.context import Context
    from aioredlock_ng._engine.keeping.watcher import Watcher
    from aioredlock_ng._engine.trust.availability import Availability
    from aioredlock_ng._engine.trust.duplicates import DuplicateNodes
    from aioredlock_ng._engine.trust.guard import Guard
    from aioredlock_ng._engine.waiting.lines import Lines
    from aioredlock_ng.events import Event

__all__ = ["Reports"]


class Reports:
    """A `NodeListener`.

    Args:
        context: The engine's surroundings.
        manager_id: See `NodeListener`.
        guard: Learns of changed markers and new connections; None without a recovery guard.
        availability: Learns of lost connections.
        lines: Learn of messages to waiters and of changed keys.
        watcher: Learns of changed keys.
        duplicates: Learns of nodes that hide who they are.
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
        """Bring nothing more to locks and leases."""
        self._closed = True

    def invalidated(self, index: int, keys: list[bytes] | None) -> None:
        """See `NodeListener.invalidated`."""
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
        """See `NodeListener.notified`."""
        if not self._closed:
            self._lines.notified(index, message)

    @contextmanager
    def onlooker(self, key: bytes, changed: Callable[[], object]) -> Iterator[None]:
        """Call `changed` whenever a node says that this tracked key, or any key, may have changed."""
        onlooker = (key, changed)
        self._onlookers.append(onlooker)
        try:
            yield
        finally:
            self._onlookers.remove(onlooker)

    def identify(self, index: int, run_id: str) -> str:
        """See `NodeListener.identify`."""
        for other, known in self._run_ids.items():
            if run_id and known == run_id and other != index:
                return self._context.fleet.nodes[other].address
        self._run_ids[index] = run_id
        if self._guard is not None:
            self._guard.quarantine.greeted(index)
        return ""

    def present(self, index: int, is_present: bool) -> None:
        """See `NodeListener.present`."""
        self._context.fleet.present(index, is_present)
        if is_present:
            # One that hides who it is may be this one too.
            for other, node in enumerate(self._context.fleet.nodes):
                if node.ready and not node.state().run_id:
                    self._duplicates.suspect(other)

    def emit(self, event: Event) -> None:
        """See `NodeListener.emit`."""
        self._context.emit(event)
