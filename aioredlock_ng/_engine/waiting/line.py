"""One waiting line: the tasks of a process that want the same lock, in order of arrival.

A line belongs to the keys of a lock, or to a semaphore and its limit. One task of a line contends:
it asks the nodes, or stands in their queues for the whole line. The other tasks of the line wait
behind this contender.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._engine.attempt.round import Round
    from aioredlock_ng._engine.spec import LineKey, LockSpec, Numbered
    from aioredlock_ng._engine.waiting.place import Place
    from aioredlock_ng._vocabulary.causes import WakeCause

__all__ = ["Contender", "Line"]

_H = TypeVar("_H")
"""The type of a lease: `LeaseRecord`, which refers to `Line` and so cannot be imported here."""


class Contender(Protocol[_H]):
    """One acquisition, from the point of view of a waiting line.

    Attributes:
        keys: The keys of a lock, or of all slots of a semaphore.
        line_key: The name of the waiting line.
        fair: True if the acquisition has its own line and its own place in the queues.
        line: The line in which the acquisition waits; set by `Lines.join`.
        unreachable: True if the latest attempt reached no quorum.
        booked: The line to whose `taken` the latest attempt has added a slot. None if the slot was
            in `taken` before this attempt.
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
        """Ask all nodes for the lock.

        Args:
            claim: The ticket and the name of the line in the queues; empty without a ticket.
            cause: The reason why a waiter asks again; None for an attempt that did not wait.
            number: The slot of a semaphore that the nodes may grant; 0 if it is not known.
        """

    def successor(self, lease: _H, now: float) -> _H | None:
        """Return a lease of the same grant as `lease`, for this acquisition.

        The result is None if this acquisition cannot use the grant, and must ask the nodes.
        """

    def take(self, lease: _H) -> None:
        """End the wait with this lease."""

    def doubt(self, index: int | None = None) -> None:
        """Mark the attempt: its grant is not passed on, because the keys may have changed.

        If node `index` reported the change but has not granted yet, the change is ignored.
        """

    def give_up(self, error: BaseException | None) -> None:
        """End the acquisition with this error; None if its caller was cancelled."""

    def fail_with(self, attempt: Round, why: str) -> None:
        """End the acquisition, because this attempt of its line has shown that no quorum can grant.

        The error has the reason `why` and the votes of the attempt.
        """

    def refuse_deadlock(self, holders: Sequence[_H]) -> None:
        """Raise an error if the task would wait for one of its own leases among `holders`.

        Raises:
            LockHeld: Raised if the current task has one of the leases, and would wait without a
                time limit.
            UpgradeRefused: Raised if the current task reads the lock, and now asks to write.
        """


class Line(Generic[_H]):
    """The tasks of one process that want the same keys.

    Attributes:
        key: The name of the line in its process.
        keys: The keys of a lock, or of all slots of a semaphore.
        slots: The slots of the semaphore; None for a lock.
        shared: True if the tasks want to read. One grant may serve all of them.
        shared_until: Instant until which readers share the grants that this process has. Later
            readers must wait for a new grant, because a writer may wait. 0.0 if the sharing was
            stopped before its end.
        reports: Maps the index of a node to the instant of its latest report of a waiting writer.
            None before the first report.
        contender: The task that asks the nodes or stands in their queues.
        unreachable: True if the latest contender gave up without having reached a quorum.
        queue: The tasks behind the contender, in order of arrival.
        holders: The leases of this process for the keys, the latest last. A lock has at most one
            lease, a semaphore at most one for each slot, and readers any number.
        place: The place of the line in the queues; None if the line is in no queue.
        trip: Duration in seconds of the round that granted the lock last. 0.0 if the line got this
            grant without standing in the queues.
        released: The answers to the latest release, and the instant at which the release began.
            None if no answer shows the tickets of other waiters.
        taken: The slots that this process holds or asks for.
        recent: The slots that this process has released, the latest last.
    """

    __slots__ = (
        "contender",
        "holders",
        "key",
        "keys",
        "place",
        "queue",
        "recent",
        "released",
        "reports",
        "shared",
        "shared_until",
        "slots",
        "taken",
        "trip",
        "unreachable",
    )

    def __init__(
        self,
        key: LineKey,
        keys: tuple[bytes, ...],
        slots: Numbered | None = None,
        *,
        shared: bool = False,
    ) -> None:
        self.key = key
        self.keys = keys
        self.slots = slots
        self.shared = shared
        self.shared_until = 0.0
        self.reports: dict[int, float] | None = None
        self.contender: Contender[_H] | None = None
        self.unreachable = False
        self.queue: OrderedDict[Contender[_H], None] | None = None
        self.holders: dict[_H, None] = {}
        self.place: Place | None = None
        self.trip = 0.0
        self.released: tuple[list[Reply], float] | None = None
        self.taken: set[int] = set()
        self.recent: dict[int, None] = {}

    @property
    def occupied(self) -> bool:
        """True while a task waits, a lease exists, or the line has a place in the queues."""
        return (
            self.contender is not None
            or bool(self.holders)
            or bool(self.queue)
            or self.place is not None
        )

    @property
    def full(self) -> bool:
        """True if this process holds the lock, or all slots of the semaphore.

        The result is False for readers, because a further reader may always ask the nodes.
        """
        if self.shared:
            return False
        return len(self.holders) >= (1 if self.slots is None else self.slots.limit)
