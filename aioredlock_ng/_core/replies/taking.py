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
        counter: The counter that kept the node from acknowledging the fence. 0 if the node
            acknowledged it, or without fencing. The record with 0 is always `GRANTED`.
    """

    counter: int


GRANTED: Final = Granted(0)
"""The usual answer to an acquire. It is compared by identity: no allocation, no call."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Every key of an acquire holds the attempt's token, and the node stored the attempt's fence.

    Attributes:
        before: The node's highest counter until then. If there was no counter, it is one less than
            the fence, because a lost counter may have been any lower number.
    """

    before: int


@dataclass(frozen=True, slots=True)
class BrokenCounter:
    """Every key holds the attempt's token, but the library cannot have written the counter.

    The node counts as refusing. A fence above that counter would spread it to every node.
    """


BROKEN_COUNTER: Final = BrokenCounter()


@dataclass(frozen=True, slots=True)
class Refused:
    """The node set nothing, because a key is held by another holder or reserved for a waiter.

    Attributes:
        left: Seconds that the key has left; None without an expiry.
        place: The place of the key among those of the command, from 1.
        ticket: The highest ticket of the waiters for any of the keys; 0 if there are none.
    """

    left: float | None
    place: int
    ticket: int


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The node set nothing, because it may have forgotten locks.

    Attributes:
        left: Seconds until it grants; None if its marker does not say.
    """

    left: float | None


Acquired = Granted | Fenced | BrokenCounter | Refused | Quarantined
"""The answer to one acquire."""


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """The node did not acknowledge the second fence of an attempt.

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
        rank: Number of waiters before it; -1 if the node could not put it in the queue.
        slots: The slots of a semaphore that the node may grant then; empty for a lock.
    """

    left: float | None
    rank: int
    slots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Left:
    """The waiter is in no queue of the node any more."""


LEFT: Final = Left()
