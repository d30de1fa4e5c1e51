"""One waiting line as data: the tasks of a process that want the same keys, in order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Sequence

    from aioredlock_ng._core.tickets import WakeCause
    from aioredlock_ng._engine.waiting.place import Place

__all__ = ["Contender", "Line"]

H = TypeVar("H")
"""The type of a lease. `Holding` refers to its line, so that this module must not import it."""


class Contender(Protocol[H]):
    """One acquisition that waits.

    Attributes:
        keys: What it wants.
        fair: True where it stands in the queues by itself.
        line: Where it waits, from `Lines.join` on.
        asking: True while an attempt of it is under way.
        unreachable: True while its last attempt could not ask a quorum.
    """

    keys: tuple[bytes, ...]
    fair: bool
    line: Line[H] | None
    unreachable: bool

    @property
    def asking(self) -> bool:
        """See above."""

    def attempt(self, claim: bytes = b"", cause: WakeCause | None = None) -> None:
        """Ask all nodes; with the claim of a waiter, and what woke it."""

    def successor(self, holding: H, now: float) -> H | None:
        """The lease that it would have by the grant of this one, which ends; None: it has to ask."""

    def take(self, holding: H) -> None:
        """Have this lease from now on."""

    def doubt(self, index: int | None = None) -> None:
        """Pass on nothing of what the attempt under way may be granted; by node `index`, or by all (None)."""

    def give_up(self, error: BaseException | None) -> None:
        """End it."""

    def refuse_deadlock(self, holders: Sequence[H]) -> None:
        """Raise `LockHeld` if it would wait for its own task, which holds one of these for ever."""


class Line(Generic[H]):
    """The tasks of one process that want the same keys.

    Attributes:
        keys: The keys.
        number: Tells the lines of a process apart.
        contender: The task that asks the nodes or stands in their queues.
        queue: The tasks behind it, in order of arrival.
        holder: The lease that the process has.
        place: Its place in the queues on the nodes, once an attempt was refused.
        run_until: Instant at which the process stops passing the grant on.
    """

    __slots__ = ("contender", "holder", "keys", "number", "place", "queue", "run_until")

    def __init__(self, keys: tuple[bytes, ...], number: int) -> None:
        self.keys = keys
        self.number = number
        self.contender: Contender[H] | None = None
        self.queue: OrderedDict[Contender[H], None] | None = None
        self.holder: H | None = None
        self.place: Place | None = None
        self.run_until = 0.0

    @property
    def occupied(self) -> bool:
        """True while a task waits or holds here, or the line has a place in the queues."""
        return (
            self.contender is not None
            or self.holder is not None
            or bool(self.queue)
            or self.place is not None
        )
