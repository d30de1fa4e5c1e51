"""Record which `async with` blocks of a `Lock` are open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioredlock_ng._leases.interruption import Interruption
from aioredlock_ng.errors import RedlockError

if TYPE_CHECKING:
    from aioredlock_ng.lease import Lease

__all__ = ["Bodies", "Body"]


class Body(Interruption):
    """One open `async with` entry: its lease and its task.

    With `on_lost="cancel"`, a loss of the lease cancels the task.
    """

    __slots__ = ("lease", "outer")

    def __init__(self, lease: Lease, task: asyncio.Task[object]) -> None:
        Interruption.__init__(self, task)
        self.lease = lease
        # The enclosing entry, if the same task has entered the same `Lock` object more than once.
        self.outer: Body | None = None


class Bodies:
    """The open entries of one `Lock`.

    Python does not say which entry an `__aexit__` belongs to. If `leave` cannot decide which entry
    to remove, it removes none and counts the exit. Once as many exits are counted as entries
    remain, no block is open, and `leave` removes all entries.
    """

    __slots__ = ("_inside", "_left", "_newest")

    def __init__(self) -> None:
        # The open entries in the order of entering. A dict makes the removal fast even if thousands
        # of readers are inside.
        self._inside: dict[Body, None] = {}
        # The newest entry of each task.
        self._newest: dict[asyncio.Task[object], Body] = {}
        # Number of exits for which `leave` removed no entry.
        self._left = 0

    def enter(self, body: Body) -> None:
        self._inside[body] = None
        body.outer = self._newest.get(body.task)
        self._newest[body.task] = body

    def leave(self, resource: str) -> Body:
        """Remove the current task's newest entry, and return it.

        If the current task has no entry and exactly one block is open, the method removes and
        returns the entry of that block, which another task entered.

        Raises:
            RedlockError: Several entries are open and none belongs to this task, or no entry is
                open.
        """
        task, inside = asyncio.current_task(), self._inside
        assert task is not None
        body = self._newest.get(task)
        if not inside:
            raise RedlockError(
                f"the lock {resource!r} is left, but no `async with` of this Lock object is open;"
                " leave each block only once"
            )
        if body is None and (count := len(inside)) > self._left + 1:
            self._left += 1
            raise RedlockError(
                f"the lock {resource!r} is left in a task that did not enter it, while"
                f" {count} `async with` of one Lock object are open; nothing was released, because"
                " it is unclear which of them ends; call `redlock.lock(...)` anew for each"
                " `async with` that another task may leave"
            )
        if body is None:
            body = next(reversed(inside))
        del inside[body]
        if body.outer is None:
            del self._newest[body.task]
        else:
            self._newest[body.task] = body.outer
        # Without the first condition, a block that another thread enters at this moment would be
        # forgotten.
        if self._left and len(inside) == self._left:
            for other in inside:
                other.take_back()
                other.lease.let_go()
            inside.clear()
            self._newest.clear()
            self._left = 0
        return body
