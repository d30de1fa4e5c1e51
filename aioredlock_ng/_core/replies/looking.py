"""The answers of a node about its keys, its marker and its commands."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "FREE",
    "Free",
    "Held",
    "KeyLook",
    "Looked",
    "MarkerRead",
    "NotALock",
    "ReadLocked",
    "Reader",
    "UnknownCommands",
]


@dataclass(frozen=True, slots=True)
class Free:
    """There is no key, or only an offer, so nobody holds the lock.

    Attributes:
        offered: Seconds for which the key is reserved for a waiter; None if there is no key.
        waiting: Number of waiters; None if the command did not ask for the number, or if the node
            cannot count the waiters.
    """

    offered: float | None = None
    waiting: int | None = None


FREE: Final = Free()


@dataclass(frozen=True, slots=True)
class Held:
    """The value of the key is a string, but not an offer.

    Attributes:
        remaining: Remaining time to live of the key, in seconds. Infinite for a key without expiry,
            which cannot be a lock of this library.
        token: The value of the key, without the mark of a lease that is over.
        label: The value of the label's key, b"" for none.
        waiting: Number of waiters; None if the command did not ask for the number, or if the node
            cannot count the waiters.
        over: True if the lease is over, and the key stays taken until the end of `min_hold`.
    """

    remaining: float
    token: bytes = field(repr=False)
    label: bytes = field(default=b"", repr=False)
    waiting: int | None = None
    over: bool = False


@dataclass(frozen=True, slots=True)
class NotALock:
    """A key that cannot be a lock of this library.

    Attributes:
        kind: The type of the key, as the server names it. Modules of a server define types of
            their own. "string" for a string without expiry, "other" if the server does not say.
        remaining: Remaining time to live of the key, in seconds; infinite for a key without expiry.
    """

    kind: str
    remaining: float

    def __str__(self) -> str:
        what = "a key of another type" if self.kind == "other" else f"a {self.kind}"
        if math.isinf(self.remaining):
            return f"{what} without expiry"
        return f"{what}, {self.remaining:.3g} s left"


@dataclass(frozen=True, slots=True)
class Reader:
    """The entry of one read grant on a node.

    Attributes:
        remaining: Remaining time to live of the entry, in seconds.
        token: The token of the grant.
        label: The value of the label's key, b"" for none.
    """

    remaining: float
    token: bytes = field(repr=False)
    label: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ReadLocked:
    """The key of a read-write lock, which is held by readers or reserved for waiting readers.

    Attributes:
        remaining: Remaining time to live of the key, in seconds.
        readers: The entries of read grants. Empty if the key has only offers to waiting readers.
        waiting: Number of waiters; None if the command did not ask for the number, or if the node
            cannot count the waiters.
    """

    remaining: float
    readers: tuple[Reader, ...]
    waiting: int | None = None


KeyLook = Free | Held | NotALock | ReadLocked
"""The contents of one key of a node."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The answer to an inspection of some keys.

    Attributes:
        keys: The contents of each key, in the order of the command.
    """

    keys: tuple[KeyLook, ...]


@dataclass(frozen=True, slots=True)
class MarkerRead:
    """The answer to a read or a write of a node's marker.

    Attributes:
        marker: The present marker, b"" for none.
        node_ms: The node's own time in milliseconds.
        own_marker: The run id and the guard time that the connection sent.
    """

    marker: bytes
    node_ms: int
    own_marker: bytes


@dataclass(frozen=True, slots=True)
class UnknownCommands:
    """The names of the commands that the server does not know."""

    names: tuple[bytes, ...]
