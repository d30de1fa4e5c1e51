"""The answers of a node to an attempt to take a lock, and to a waiter in its queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "BROKEN_COUNTER",
    "GRANTED",
    "LEFT",
    "Acquired",
    "BrokenCounter",
    "Fenced",
    "Granted",
    "Left",
    "Quarantined",
    "Refused",
    "Standing",
    "Unacknowledged",
]


@dataclass(frozen=True, slots=True)
class Granted:
    """Every key of an acquire holds the attempt's token.

    Attributes:
        counter: The counter that kept the node from acknowledging the fence, because the counter is
            not below the fence. For a reader's attempt, the counter to which the node has raised
            its own counter. 0 if the node acknowledged the fence, or if the lock has no fence.
    """

    counter: int


GRANTED: Final = Granted(0)
"""The usual answer to an acquire. All code shares this record, and compares it by identity."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Every key of an acquire holds the attempt's token, and the node stored the attempt's fence.

    Attributes:
        before: The highest counter that the fence replaced. A missing counter counts as one less
            than the fence, because the node may have lost the counter.
    """

    before: int


@dataclass(frozen=True, slots=True)
class BrokenCounter:
    """Every key holds the attempt's token, but the node's counter is damaged.

    The vote of the node is `failed`, because a fence above a damaged counter would spread the
    damage to every node.
    """


BROKEN_COUNTER: Final = BrokenCounter()


@dataclass(frozen=True, slots=True)
class Refused:
    """The node set nothing, because a key is held, is reserved, or has a waiting writer.

    Attributes:
        left: Remaining time to live of the key that caused the refusal, in seconds; None if the key
            does not expire or is gone.
        place: The place of that key among the keys of the command. The first place is 1.
        ticket: The highest ticket of the waiters for any of the keys; 0 if there are none.
    """

    left: float | None
    place: int
    ticket: int


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The node granted nothing, because it may have forgotten locks.

    Attributes:
        left: Seconds until the node grants; None if its marker is missing or is not the expected
            marker.
    """

    left: float | None


Acquired = Granted | Fenced | BrokenCounter | Refused | Quarantined
"""The answer to one acquire."""


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """The node did not acknowledge the fence of an attempt's second round.

    Attributes:
        counter: The node's highest counter. 0 if a key no longer holds the attempt's token. A
            damaged counter may be any number.
    """

    counter: int


@dataclass(frozen=True, slots=True)
class Standing:
    """The place of a waiter in the queue of a node.

    Attributes:
        left: Seconds until the node may grant; 0.0 means now, None means unknown.
        rank: Number of waiters before this waiter; -1 if the node could not put this waiter in the
            queue.
        slots: The slots of a semaphore that the node may grant after `left` seconds; empty for a
            lock.
        watched: True if the label of the holder shows that the holder watches the key. The holder
            then offers a deleted key to the waiter.
    """

    left: float | None
    rank: int
    slots: tuple[int, ...] = ()
    watched: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """The node has removed a waiter from the queues of the command's keys."""


LEFT: Final = Left()
