"""Convert locks and times to words for people, and locks to dictionaries for JSON."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioredlock_ng import LockInfo, SemaphoreInfo

__all__ = [
    "as_dict",
    "fence",
    "foreign",
    "holder",
    "holder_of",
    "is_lock",
    "life",
    "life_of",
    "owner",
    "print_json",
    "readers",
    "safe",
    "seconds",
    "slots_as_dict",
    "waiting",
]

_SHORT = 6
"""Number of characters of a token that are shown, as in the log.

A token is shortened because anybody who knows a whole token can release the lock.
"""


def print_json(value: object) -> None:
    """Write a value to standard output as JSON.

    Non-ASCII characters are escaped, so that a terminal with any encoding can show them.
    """
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def as_dict(info: LockInfo) -> dict[str, Any]:
    """Return the state of a lock as a dictionary for JSON.

    JSON has no infinity, so `remaining` is None for a key without expiry. `remaining` is also None
    if the lock is not held. The token is None for a key that is not a lock, because the key's value
    may be a user's data.
    """
    expires = info.held and math.isfinite(info.remaining)
    told = {**asdict(info), "remaining": info.remaining if expires else None}
    if not is_lock(info):
        told["token"] = None
    for answer in told["answers"]:
        if answer["foreign"]:
            answer["token"] = None
    return told


def slots_as_dict(info: SemaphoreInfo) -> dict[str, Any]:
    """Return the state of a semaphore as a dictionary for JSON, with an entry for each slot."""
    return {
        "resource": info.resource,
        "limit": info.limit,
        "held": info.held,
        "waiting": info.waiting,
        "slots": [as_dict(slot) for slot in info.slots],
    }


def is_lock(info: LockInfo) -> bool:
    """Return True if the token of `info` comes from a key that can be a lock of this library.

    The result is also True if the lock has readers.
    """
    if info.readers:
        return True
    answers = (answer for answer in info.answers if answer.token is not None and not answer.foreign)
    return any(answer.token == info.token for answer in answers)


def foreign(info: LockInfo) -> str:
    """Return the types of the nodes' keys that are not locks, or "" if all keys may be locks."""
    return ", ".join(sorted({answer.foreign for answer in info.answers} - {""}))


def holder(token: str | None) -> str:
    """Return the beginning of a token, or "-" if the token is None."""
    if token is None:
        return "-"
    return safe(f"{token[:_SHORT]}…" if len(token) > _SHORT else token)


def readers(count: int) -> str:
    """Return a number of readers in words, such as "2 readers"."""
    return f"{count} reader" if count == 1 else f"{count} readers"


def holder_of(info: LockInfo) -> str:
    """Return a lock's holder in words.

    The words are the beginning of the token, the number of readers, "offered" if the lock is
    reserved for a waiter, or "-" if there is no holder. If the lease is over, "over" follows the
    token.
    """
    if info.offered:
        return "offered"
    if info.readers:
        return readers(len(info.readers))
    return f"{holder(info.token)} over" if info.over else holder(info.token)


def owner(info: LockInfo) -> str:
    """Return the holder's label or "-", and the number of further readers if there are any."""
    label = "-" if info.owner is None else safe(info.owner.label)
    others = len(info.readers) - 1
    return f"{label} and {others} more" if others > 0 else label


def fence(info: LockInfo) -> str:
    """Return the holder's fence, or "-" if the fence is not known."""
    return "-" if info.owner is None or info.owner.fence is None else str(info.owner.fence)


def waiting(info: LockInfo) -> str:
    """Return the number of waiters of a lock, or "-" if the number is not known."""
    return "-" if info.waiting is None else str(info.waiting)


def seconds(value: float | None) -> str:
    """Format a time in seconds, or return "-" for None. A longer time has fewer decimals."""
    if value is None:
        return "-"
    size = abs(value)
    decimals = 0 if size >= 100 else 1 if size >= 1 or not size else 3 if size >= 0.01 else 5
    return f"{value:,.{decimals}f} s"


def life(remaining: float | None) -> str:
    """Format the remaining time of a key. None and infinity mean that the key does not expire."""
    return (
        "no expiry" if remaining is None or math.isinf(remaining) else f"{seconds(remaining)} left"
    )


def life_of(info: LockInfo) -> str:
    """Format the remaining time of a lock, or return "-" if the lock is not held."""
    return life(info.remaining) if info.held else "-"


def safe(text: str) -> str:
    """Return a text with unprintable characters escaped.

    Control characters would move the cursor or end the line.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
