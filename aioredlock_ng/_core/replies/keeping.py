"""The answers of a node to a renewal, a watch, a repair and a release.

A watch is a read of a lease's keys, after which the server tracks the keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

__all__ = [
    "ForceReleased",
    "KeyState",
    "KeyStates",
    "Released",
    "Repaired",
    "released",
]


class KeyState(Enum):
    """The answer to the question whether a lease still has a key on a node.

    `OURS`: the key holds the token or the entry of the lease. `FOREIGN`: the key holds another
    string, which is not an offer. `MISSING`: all other cases, such as no key, a key that is
    reserved for a waiter, or a key of another type.
    """

    OURS = auto()
    MISSING = auto()
    FOREIGN = auto()


@dataclass(frozen=True, slots=True)
class KeyStates:
    """The answer to a renewal or a watch if some key does not hold the lease's token or entry.

    Attributes:
        states: The state of each key, in the order of the command.
    """

    states: tuple[KeyState, ...]

    @property
    def some_ours(self) -> bool:
        return KeyState.OURS in self.states

    def are_ours(self, first: int, count: int) -> bool:
        return self.states[first : first + count].count(KeyState.OURS) == count

    def are_missing(self, first: int, count: int) -> bool:
        """Return True if any of `count` keys from `first` on is missing, and none is foreign."""
        states = self.states[first : first + count]
        return KeyState.MISSING in states and KeyState.FOREIGN not in states


class Repaired(Enum):
    """The answer to a repair.

    `DONE`: the node has the keys and the fence of the lease. `OUTRUN`: a key has another holder, or
    a key is missing and a fence counter is above the lease's fence. `UNTRUSTED`: a key is missing,
    and the node may have forgotten locks.
    """

    DONE = auto()
    OUTRUN = auto()
    UNTRUSTED = auto()


@dataclass(frozen=True, slots=True)
class Released:
    """A release was executed.

    Attributes:
        deleted: The number of the lock's keys that held the token or the entry of the lease. With
            `min_hold`, these keys may stay taken for a while.
        ticket: The highest ticket of the waiters for the lock's key; 0 if the node did not report
            it.
    """

    deleted: int
    ticket: int = field(default=0, compare=False)


_RELEASED: Final = tuple(map(Released, range(33)))
"""Records without a ticket. They are made once, because most releases need one of them."""


def released(deleted: int) -> Released:
    return _RELEASED[deleted] if deleted < len(_RELEASED) else Released(deleted)


@dataclass(frozen=True, slots=True)
class ForceReleased:
    """A forced release was executed.

    Attributes:
        deleted: The number of keys that the node deleted or offered to a waiter, plus the number of
            readers' entries that the node removed.
    """

    deleted: int
