"""The answers of a node to a renewal, a watch, a repair and a release."""

from __future__ import annotations

from dataclasses import dataclass
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
    """The holder of a key. A renewal and a watch report a key of another type as missing."""

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

    `OUTRUN` means that another holder was faster: a key is foreign, or a counter is above the
    lease's fence. `UNTRUSTED` means that the node may have forgotten locks.
    """

    DONE = auto()
    OUTRUN = auto()
    UNTRUSTED = auto()


@dataclass(frozen=True, slots=True)
class Released:
    """A release was executed.

    Attributes:
        deleted: The number of the lock's keys that held the token and are deleted now.
    """

    deleted: int


_RELEASED: Final = tuple(map(Released, range(33)))


def released(deleted: int) -> Released:
    """Return the record of a release. Records of few keys are not allocated anew."""
    return _RELEASED[deleted] if deleted < len(_RELEASED) else Released(deleted)


@dataclass(frozen=True, slots=True)
class ForceReleased:
    """A forced release was executed.

    Attributes:
        deleted: The number of the keys that it deleted.
    """

    deleted: int
