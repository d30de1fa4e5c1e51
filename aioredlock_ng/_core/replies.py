"""What a script's reply says, as small frozen records. This module never sees the wire.

`_scripts/replies.py` decodes each reply once, right after the parser. Code above it compares
records and reads their attributes. It never looks into a list of a server.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

__all__ = [
    "ALL_DONE",
    "ALL_OURS",
    "BROKEN_COUNTER",
    "FREE",
    "GRANTED",
    "LEFT",
    "Acquired",
    "AcquiredEach",
    "BrokenCounter",
    "Fenced",
    "ForceReleased",
    "Free",
    "Granted",
    "HandedOverEach",
    "Held",
    "KeyLook",
    "KeyState",
    "KeyStates",
    "Left",
    "Looked",
    "MarkerRead",
    "NotALock",
    "Quarantined",
    "Record",
    "Refused",
    "Released",
    "ReleasedEach",
    "Repaired",
    "Standing",
    "Unacknowledged",
    "UnknownCommands",
    "Whole",
    "released",
]


class Whole(Enum):
    """A reply that says the same of all its parts. It is compared by identity: no allocation."""

    ALL_OURS = auto()
    ALL_DONE = auto()


ALL_OURS: Final = Whole.ALL_OURS
"""The answer to a renewal or a watch: every key holds its token."""

ALL_DONE: Final = Whole.ALL_DONE
"""The answer to several calls sent as one: each of them succeeded."""


@dataclass(frozen=True, slots=True)
class Granted:
    """Every key of an acquire holds the attempt's token.

    Attributes:
        counter: The counter that kept the node from acknowledging the fence. 0 if the node
            acknowledged it, or without fencing; that record is always `GRANTED`.
    """

    counter: int


GRANTED: Final = Granted(0)
"""The usual answer to an acquire. It is compared by identity: no allocation, no call."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Every key of an acquire holds the attempt's token, and the node stored the attempt's fence.

    Attributes:
        before: The node's highest counter until then. Where it had none, one less than the fence:
            a lost counter says nothing of the fences below.
    """

    before: int


@dataclass(frozen=True, slots=True)
class BrokenCounter:
    """Every key holds the attempt's token, but the counter is none that this library has written.

    The node counts as refusing: a fence above that counter would spread it to every node.
    """


BROKEN_COUNTER: Final = BrokenCounter()


@dataclass(frozen=True, slots=True)
class Refused:
    """The node set nothing, because of a key that another holds or that is kept for a waiter.

    Attributes:
        left: Seconds that the key has left; None without an expiry.
        place: The place of the key among those of the command, from 1.
        ticket: The highest ticket of those that wait for any of the keys; 0 where nobody waits.
    """

    left: float | None
    place: int
    ticket: int


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The node set nothing, because it may have forgotten locks.

    Attributes:
        left: Seconds until it grants; None where its marker does not say.
    """

    left: float | None


Acquired = Granted | Fenced | BrokenCounter | Refused | Quarantined
"""The answer to one acquire."""


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """The node did not acknowledge the second fence of an attempt.

    Attributes:
        counter: Its highest counter; 0 where a key is no longer the attempt's. A damaged counter
            may be any number.
    """

    counter: int


@dataclass(frozen=True, slots=True)
class Standing:
    """The place of a waiter in the queue of a node.

    Attributes:
        left: Seconds until the node may grant; 0.0 now, None where it does not know.
        rank: How many stand before it; -1 where it could not be put in the queue.
    """

    left: float | None
    rank: int


@dataclass(frozen=True, slots=True)
class Left:
    """A waiter is in no queue of the node any more."""


LEFT: Final = Left()


@dataclass(frozen=True, slots=True)
class UnknownCommands:
    """The answer to the question which commands the server knows.

    Attributes:
        names: The commands that the server does not know.
    """

    names: tuple[bytes, ...]


class KeyState(Enum):
    """Whose a key is. A watch calls a key of another type missing, a renewal calls it another's."""

    OURS = auto()
    MISSING = auto()
    FOREIGN = auto()


@dataclass(frozen=True, slots=True)
class KeyStates:
    """The answer to a renewal or a watch of which not every key is ours.

    Attributes:
        states: Of the keys, in the order of the command.
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
        """True if one of these keys is missing and none is another's."""
        states = self.states[first : first + count]
        return KeyState.MISSING in states and KeyState.FOREIGN not in states


@dataclass(frozen=True, slots=True)
class Released:
    """A release was executed.

    Attributes:
        deleted: The number of the lock's keys that held the token and are deleted now.
    """

    deleted: int


_RELEASED: Final = tuple(map(Released, range(33)))


def released(deleted: int) -> Released:
    """Return the record of a release. One of few keys is not allocated anew."""
    return _RELEASED[deleted] if deleted < len(_RELEASED) else Released(deleted)


@dataclass(frozen=True, slots=True)
class ReleasedEach:
    """Several releases were executed as one.

    Attributes:
        calls: One per call. Those behind a call that the server refused are not there.
    """

    calls: tuple[Released, ...]


@dataclass(frozen=True, slots=True)
class AcquiredEach:
    """Several acquires were executed as one.

    Attributes:
        calls: One per call. Those behind a call that the server refused are not there.
    """

    calls: tuple[Acquired, ...]


@dataclass(frozen=True, slots=True)
class HandedOverEach:
    """Several releases, each with an acquire behind it, were executed as one.

    Attributes:
        calls: Two per hand-over, by turns. Those behind a call that the server refused are not there.
    """

    calls: tuple[Released | Acquired, ...]


@dataclass(frozen=True, slots=True)
class Free:
    """There is no key, or an offer, which is held by nobody.

    Attributes:
        offered: Seconds for which the key is kept for a waiter; None if there is no key.
        waiting: How many wait for the key; None where the node was not asked, or does not know.
    """

    offered: float | None = None
    waiting: int | None = None


FREE: Final = Free()


@dataclass(frozen=True, slots=True)
class Held:
    """A string is under the key.

    Attributes:
        remaining: Seconds that it has left; infinite without an expiry, which every lock of this
            library has.
        token: Its value.
        label: What its holder wrote beside it.
        waiting: How many wait for the key; None where the node was not asked, or does not know.
    """

    remaining: float
    token: bytes = field(repr=False)
    label: bytes = field(default=b"", repr=False)
    waiting: int | None = None


@dataclass(frozen=True, slots=True)
class NotALock:
    """A key that can be no lock of this library.

    Attributes:
        kind: Its type as the server names it, "string" for one without expiry; "other" where the
            server does not say.
        remaining: Seconds that it has left; infinite without an expiry.
    """

    kind: str
    remaining: float

    def __str__(self) -> str:
        """What it is, for messages."""
        what = "a key of another type" if self.kind == "other" else f"a {self.kind}"
        if math.isinf(self.remaining):
            return f"{what} without expiry"
        return f"{what}, {self.remaining:.3g} s left"


KeyLook = Free | Held | NotALock
"""What a node has under one key."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The answer to a look at some keys.

    Attributes:
        keys: Of each, in the order of the command.
    """

    keys: tuple[KeyLook, ...]


@dataclass(frozen=True, slots=True)
class ForceReleased:
    """A forced release was executed.

    Attributes:
        deleted: The number of the keys that it deleted.
    """

    deleted: int


class Repaired(Enum):
    """What became of a repair. The attempt of another holder may have outrun it.

    `OUTRUN` means that a key is another's, or that a counter is above the lease's fence.
    """

    DONE = auto()
    OUTRUN = auto()
    UNTRUSTED = auto()


@dataclass(frozen=True, slots=True)
class MarkerRead:
    """The answer to a look at a node's marker, or to a write of it.

    Attributes:
        marker: As it is now, b"" for none.
        node_ms: The node's own time in milliseconds.
        vouch: What the connection sent in place of the placeholder: run_id and guard time.
    """

    marker: bytes
    node_ms: int
    vouch: bytes


Record = (
    Acquired
    | AcquiredEach
    | ForceReleased
    | HandedOverEach
    | KeyState
    | KeyStates
    | Left
    | Looked
    | MarkerRead
    | Released
    | ReleasedEach
    | Repaired
    | Standing
    | Unacknowledged
    | UnknownCommands
    | Whole
)
"""What a script answered."""
