"""Define the events of elections. The module `events` exports them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "LeaderChanged",
    "RenewalSlow",
    "SteppingDown",
    "TermBegan",
    "TermEnded",
    "TermOutlived",
]


@dataclass(frozen=True, slots=True)
class TermBegan:
    """A candidate of this process has become the leader.

    Attributes:
        resource: The election's name.
        label: The candidate's label.
        fence: The fence of the candidate's lease; None without fencing.
    """

    resource: str
    label: str
    fence: int | None


@dataclass(frozen=True, slots=True)
class TermEnded:
    """A leader of this process has ended its work, and its lease is released or lost.

    Each `TermBegan` is followed by one `TermEnded`. If a manager of `aioredlock_ng.sync` is closed,
    or if its thread dies, the event is sent at that moment, and the leader may still work.

    Attributes:
        resource: The election's name.
        label: The candidate's label.
        fence: The fence of the candidate's lease; None without fencing.
        led_for: Seconds since the term began.
        cause: "done": the work was finished. "failed": the work raised an exception. "cancelled":
            the leader's task was cancelled from outside. "resigned": `resign()` was called.
            "step_down": the lease had only `step_down` seconds left, because no renewal succeeded
            or `max_hold` was near. "lost": the lease was lost.
    """

    resource: str
    label: str
    fence: int | None
    led_for: float
    cause: Literal["done", "failed", "cancelled", "resigned", "step_down", "lost"]


@dataclass(frozen=True, slots=True)
class RenewalSlow:
    """The renewal of a leader's lease is late.

    Unless a renewal succeeds in time, the leader steps down.

    Attributes:
        resource: The election's name.
        fence: The fence of the leader's lease; None without fencing.
        remaining: Seconds until the lease is lost if no renewal succeeds.
    """

    resource: str
    fence: int | None
    remaining: float


@dataclass(frozen=True, slots=True)
class SteppingDown:
    """A leader must end its work because its lease has only `step_down` seconds left.

    A leader that swallows its cancellation keeps the lock for as long as its lease is renewed, but
    does not lead any more.

    Attributes:
        resource: The election's name.
        fence: The fence of the leader's lease; None without fencing.
        remaining: Seconds until another candidate can lead. The leader should end its work in this
            time.
        cause: "unrenewed": no renewal succeeded in time. "max_hold": the `max_hold` is nearly over.
    """

    resource: str
    fence: int | None
    remaining: float
    cause: Literal["unrenewed", "max_hold"] = "unrenewed"


@dataclass(frozen=True, slots=True)
class TermOutlived:
    """A leader went on working after its lease was lost. Another candidate may lead meanwhile.

    The event is sent once per term. If the event loop stood still, the event is sent when the loop
    runs again, and the work may be over by then. `Election.check()` raises `LockLost` until the
    leader has ended its work.

    Attributes:
        resource: The election's name.
        fence: The fence of the leader's lease; None without fencing.
        over_for: Seconds since the lease was lost.
    """

    resource: str
    fence: int | None
    over_for: float


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """An `Election` of this process learned that the leader changed.

    It learns this from its own terms, and from the nodes during `watch()`.

    Attributes:
        resource: The election's name.
        leader: The label of the leader; None if nobody leads.
    """

    resource: str
    leader: str | None
