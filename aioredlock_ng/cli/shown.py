"""Locks for people and for machines: a dictionary for JSON, words for lines; it asks nobody."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioredlock_ng import LockInfo

__all__ = ["as_dict", "fence", "foreign", "holder", "is_lock", "life", "owner", "print_json", "safe"]

_SHORT = 6
"""Characters of a token that tell it from others, as in the log; a whole one is enough to release the lock with."""


def print_json(value: object) -> None:
    """Write a value to standard output; non-ASCII is escaped, so that any terminal's encoding will do."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def as_dict(info: LockInfo) -> dict[str, Any]:
    """For JSON: seconds, null for a key without expiry (there is no infinity in JSON) and where nothing is known.

    Null is as well what a key holds that is no lock: it may be somebody's data.
    """
    told = {**asdict(info), "remaining": info.remaining if math.isfinite(info.remaining) else None}
    if not is_lock(info):
        told["token"] = None
    for answer in told["answers"]:
        if answer["foreign"]:
            answer["token"] = None
    return told


def is_lock(info: LockInfo) -> bool:
    """False where what most nodes have under the key, if anything, can be no lock of this library."""
    return any(answer.token == info.token and not answer.foreign for answer in info.answers if answer.token is not None)


def foreign(info: LockInfo) -> str:
    """What is under the key in place of a lock, for people; "" where there is no such thing."""
    return ", ".join(sorted({answer.foreign for answer in info.answers} - {""}))


def holder(token: str | None) -> str:
    """A token for people: its beginning."""
    if token is None:
        return "-"
    return safe(f"{token[:_SHORT]}…" if len(token) > _SHORT else token)


def owner(info: LockInfo) -> str:
    """Who holds it, as far as the holder said."""
    return "-" if info.owner is None else safe(info.owner.label)


def fence(info: LockInfo) -> str:
    """The holder's fence, as far as the holder said."""
    return "-" if info.owner is None or info.owner.fence is None else str(info.owner.fence)


def life(seconds: float | None) -> str:
    """What is left, for people."""
    return "no expiry" if seconds is None or math.isinf(seconds) else f"{seconds:.1f} s left"


def safe(text: str) -> str:
    """Text from a server without control characters: it must not move the cursor or end the line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
