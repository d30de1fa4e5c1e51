"""What a node answers to questions that change nothing: its keys, its marker, its commands."""

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


@dataclass(frozen=True, slots=True)
class UnknownCommands:
    """The answer to the question which commands the server knows.

    Attributes:
        names: The commands that the server does not know.
    """

    names: tuple[bytes, ...]
