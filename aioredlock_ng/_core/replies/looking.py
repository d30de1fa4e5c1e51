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
    "UnknownCommands",
]


@dataclass(frozen=True, slots=True)
class Free:
    """There is no key, or only an offer, so nobody holds the lock.

    Attributes:
        offered: Seconds for which the key is reserved for a waiter; None if there is no key.
        waiting: Number of waiters; None if the node was not asked, or does not know.
    """

    offered: float | None = None
    waiting: int | None = None


FREE: Final = Free()


@dataclass(frozen=True, slots=True)
class Held:
    """A string is under the key.

    Attributes:
        remaining: Seconds that it has left. Infinite without an expiry, which every lock of this
            library has.
        token: Its value, without the mark of a lease that is over.
        label: The value of the label's key, b"" for none.
        waiting: Number of waiters; None if the node was not asked, or does not know.
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
        kind: Its type as the server names it. "string" for a string without expiry, "other" if the
            server does not say.
        remaining: Seconds that it has left; infinite without an expiry.
    """

    kind: str
    remaining: float

    def __str__(self) -> str:
        """Describe the key for messages."""
        what = "a key of another type" if self.kind == "other" else f"a {self.kind}"
        if math.isinf(self.remaining):
            return f"{what} without expiry"
        return f"{what}, {self.remaining:.3g} s left"


KeyLook = Free | Held | NotALock
"""The contents of one key of a node."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The answer to an inspection of some keys.

    Attributes:
        keys: The contents of each, in the order of the command.
    """

    keys: tuple[KeyLook, ...]


@dataclass(frozen=True, slots=True)
class MarkerRead:
    """The answer to a read or a write of a node's marker.

    Attributes:
        marker: The present marker, b"" for none.
        node_ms: The node's own time in milliseconds.
        vouch: The run id and the guard time that the connection sent.
    """

    marker: bytes
    node_ms: int
    vouch: bytes


@dataclass(frozen=True, slots=True)
class UnknownCommands:
    """The answer to the question which commands the server knows.

    Attributes:
        names: The commands that the server does not know.
    """

    names: tuple[bytes, ...]
