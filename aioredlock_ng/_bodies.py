"""Keep the open `async with` entries of a lock, and cancel their tasks on a loss."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioredlock_ng.errors import RedlockError

if TYPE_CHECKING:
    from aioredlock_ng.lease import Lease

__all__ = ["Bodies", "Body"]


class Body:
    """The task inside one `async with`. A loss cancels it as `asyncio.timeout` cancels a task."""

    __slots__ = ("_cancelling", "_told", "lease", "task")

    def __init__(self, lease: Lease, task: asyncio.Task[object]) -> None:
        self.lease = lease
        self.task = task
        self._cancelling = task.cancelling()
        self._told = False

    def lost(self) -> None:
        """Cancel the task, unless it found the loss itself and receives it as an exception."""
        if self.task is not asyncio.current_task():
            self._told = True
            self.task.cancel()

    def leave(self) -> bool:
        """Undo our cancellation.

        Return True if this object cancelled the leaving task, and no other code did.
        """
        if not self._told:
            return False
        return self.task.uncancel() <= self._cancelling and self.task is asyncio.current_task()


class Bodies:
    """The open entries of one `Lock`.

    Python does not say which entry an `__aexit__` belongs to. Each call of `leave` removes one
    entry, so the number of open entries is always known. At most the newest entry still holds the
    lock, because a lease begins only after the previous lease ended.
    """

    __slots__ = ("_inside", "_left")

    def __init__(self) -> None:
        self._inside: list[Body] = []
        # Number of blocks that were left without an entry, because `leave` could not choose one.
        self._left = 0

    def enter(self, body: Body) -> None:
        """Add an entry."""
        self._inside.append(body)

    def leave(self, resource: str) -> Body:
        """Remove the current task's newest entry.

        A task without entries removes the entry of another task only if all entries have been left.

        Raises:
            RedlockError: Several entries are open and none belongs to this task, or no entry is
                open.
        """
        task, inside = asyncio.current_task(), self._inside
        mine = [body for body in inside if body.task is task]
        if not inside:
            raise RedlockError(
                f"the lock {resource!r} is left, but no `async with` of this Lock object is open"
            )
        if not mine and (count := len(inside)) > self._left + 1:
            self._left += 1
            raise RedlockError(
                f"the lock {resource!r} is left in a task that did not enter it, while"
                f" {count} `async with` of one Lock object are open: the entry is ambiguous,"
                " so nothing was released; call `redlock.lock(...)` for each `async with`"
                " that another task leaves"
            )
        body = (mine or inside)[-1]
        inside.remove(body)
        if len(inside) == self._left:
            for other in inside:
                other.leave()
                other.lease.let_go()
            inside.clear()
            self._left = 0
        return body
