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
"""Characters of a token that are shown, as in the log. The whole one is enough to release the lock with."""


def print_json(value: object) -> None:
    """Write a value to standard output; non-ASCII is escaped, so that any terminal's encoding will do."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def as_dict(info: LockInfo) -> dict[str, Any]:
    """For JSON: seconds, null for a key without expiry (JSON has no infinity) and for the unknown.

    The token of a key that is no lock is null too: its value may be somebody's data.
    """
    told = {**asdict(info), "remaining": info.remaining if math.isfinite(info.remaining) else None}
    if not is_lock(info):
        told["token"] = None
    for answer in told["answers"]:
        if answer["foreign"]:
            answer["token"] = None
    return told


def is_lock(info: LockInfo) -> bool:
    """True if some node has the token of `info` under a key that can be a lock of this library."""
    answers = (answer for answer in info.answers if answer.token is not None and not answer.foreign)
    return any(answer.token == info.token for answer in answers)


def foreign(info: LockInfo) -> str:
    """The types of the keys that are no locks, for people; "" where there are none."""
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
