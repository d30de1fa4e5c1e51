"""The answers of a node to a renewal, a watch, a repair and a release."""

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
    """The state of a key: it holds our token, is missing, or holds another value.

    A renewal and a watch report a key of another type as missing.
    """

    OURS = auto()
    MISSING = auto()
    FOREIGN = auto()


@dataclass(frozen=True, slots=True)
class KeyStates:
    """The answer to a renewal or a watch if not every key is ours.

    Attributes:
        states: The state of each key, in the order of the command.
    """

    states: tuple[KeyState, ...]

    @property
    def some_ours(self) -> bool:
        """True if any of the keys is ours."""
        return KeyState.OURS in self.states

    def are_ours(self, first: int, count: int) -> bool:
        """True if all of these keys are ours."""
        return self.states[first : first + count].count(KeyState.OURS) == count

    def are_missing(self, first: int, count: int) -> bool:
        """True if at least one of these keys is missing and none is foreign."""
        states = self.states[first : first + count]
        return KeyState.MISSING in states and KeyState.FOREIGN not in states


class Repaired(Enum):
    """The result of a repair.

    `OUTRUN` means that another holder was faster. Either a key is foreign, or a key is missing and
    a fence counter is above the fence of the repair. `UNTRUSTED` means that the node may have
    forgotten locks.
    """

    DONE = auto()
    OUTRUN = auto()
    UNTRUSTED = auto()


@dataclass(frozen=True, slots=True)
class Released:
    """A release was executed.

    Attributes:
        deleted: The number of the lock's keys that held the token. The node has deleted these keys,
            offered them to a waiter, or keeps them taken until the end of `min_hold`.
        ticket: The highest ticket of the waiters for the lock's only key, if the node has offered
            the key to one of them; else 0.
    """

    deleted: int
    ticket: int = field(default=0, compare=False)


_RELEASED: Final = tuple(map(Released, range(33)))


def released(deleted: int) -> Released:
    """Return the record of a release. The records for few keys are made once and shared."""
    return _RELEASED[deleted] if deleted < len(_RELEASED) else Released(deleted)


@dataclass(frozen=True, slots=True)
class ForceReleased:
    """A forced release was executed.

    Attributes:
        deleted: The number of keys that the node deleted or offered to a waiter, plus the number of
            readers' entries that the node removed.
    """

    deleted: int
