"""One waiting line: the tasks of a process that want the same lock, in order of arrival.

A line is for the keys of a lock, or for a semaphore with its limit. One task of a line contends: it
asks the nodes, or stands in their queues for the whole line. The other tasks wait behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Sequence

    from aioredlock_ng._core.tickets import WakeCause
    from aioredlock_ng._engine.spec import LineKey, LockSpec, Numbered
    from aioredlock_ng._engine.waiting.place import Place

__all__ = ["Contender", "Line"]

_H = TypeVar("_H")
"""The type of a lease. `Holding` refers to `Line`, so this module cannot import `Holding`."""


class Contender(Protocol[_H]):
    """One acquisition that waits.

    Attributes:
        keys: The keys that it wants: all of them, or any one slot of a semaphore.
        line_key: The name of its line.
        spec: The lock or the semaphore.
        fair: True if it shares no line, and stands in the queues by itself.
        line: The line in which it waits; set by `Lines.join`.
        unreachable: True while its latest attempt reached no quorum.
        booked: The line whose `taken` has the slot of its latest attempt for this attempt alone.
    """

    keys: tuple[bytes, ...]
    line_key: LineKey
    spec: LockSpec
    fair: bool
    line: Line[_H] | None
    unreachable: bool
    booked: Line[_H] | None

    @property
    def asking(self) -> bool:
        """True while an attempt is under way."""

    def attempt(self, claim: bytes = b"", cause: WakeCause | None = None, number: int = 0) -> None:
        """Ask all nodes.

        Args:
            claim: The claim of the line in the queues; empty without a ticket.
            cause: The reason why a waiter asks again; None for an attempt that did not wait.
            number: The slot of a semaphore that the nodes may grant; 0 if it is not known.
        """

    def successor(self, holding: _H, now: float) -> _H | None:
        """Return the lease that this acquisition would get from the grant of an ending lease.

        None: the grant does not suit, so the nodes must be asked.
        """

    def take(self, holding: _H) -> None:
        """End the wait with this lease."""

    def doubt(self, index: int | None = None) -> None:
        """Forbid to pass on the grant of the attempt under way.

        Args:
            index: The node that reported a change; None: the change may concern all nodes. If the
                node has not granted yet, the change came before the grant and is ignored.
        """

    def give_up(self, error: BaseException | None) -> None:
        """End the acquisition with this error; None if its caller was cancelled."""

    def refuse_deadlock(self, holders: Sequence[_H]) -> None:
        """Refuse to let a task wait for itself.

        Args:
            holders: The leases that this process has of any of the keys.

        Raises:
            LockHeld: The current task has one of the leases, and would wait without a time limit.
        """


class Line(Generic[_H]):
    """The tasks of one process that want the same keys.

    Attributes:
        key: The name of the line in its process.
        keys: The keys: all of them are wanted, or any one slot of a semaphore.
        slots: The slots of the semaphore; None for a lock.
        number: A unique number, which is part of the line's name in the queues.
        contender: The task that asks the nodes or stands in their queues.
        queue: The tasks behind the contender, in order of arrival.
        holders: The leases of the keys that this process has: one of a lock, and one for each slot
            of a semaphore.
        place: The place of the line in the queues; None if it has none.
        scarce: True if the line had to queue for its latest slot of a semaphore. An attempt without
            a place in the queues then has little chance.
        taken: The slots that this process holds or asks for.
        recent: The slots that this process has released, the latest last.
    """

    __slots__ = (
        "contender",
        "holders",
        "key",
        "keys",
        "number",
        "place",
        "queue",
        "recent",
        "scarce",
        "slots",
        "taken",
    )

    def __init__(
        self, key: LineKey, keys: tuple[bytes, ...], number: int, slots: Numbered | None = None
    ) -> None:
        self.key = key
        self.keys = keys
        self.slots = slots
        self.number = number
        self.contender: Contender[_H] | None = None
        self.queue: OrderedDict[Contender[_H], None] | None = None
        self.holders: dict[_H, None] = {}
        self.place: Place | None = None
        self.scarce = False
        self.taken: set[int] = set()
        self.recent: dict[int, None] = {}

    @property
    def occupied(self) -> bool:
        """True while a task waits or holds the keys, or the line has a place in the queues."""
        return (
            self.contender is not None
            or bool(self.holders)
            or bool(self.queue)
            or self.place is not None
        )

    @property
    def full(self) -> bool:
        """True if this process holds the lock, or all slots of the semaphore."""
        return len(self.holders) >= (1 if self.slots is None else self.slots.limit)
