"""Labels that name a lock's holder for people.

A label has a key of its own beside the lock's key.
"""

from __future__ import annotations

from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng.errors import ConfigurationError
from aioredlock_ng.records import Owner

__all__ = [
    "MAX_LABEL",
    "checked_label",
    "checked_owner",
    "label_life",
    "owner_key",
    "pack_owner",
    "printable_label",
    "read_owner",
]

MAX_LABEL = 200
"""Bytes of a label in UTF-8. A label is written for every lock that is held long enough."""

_PREFIX = 16
"""Characters of the token in a label. They show that the label belongs to the present holder."""

_OWNER_KEYS = OWN_KEYS + b"owner:"


def owner_key(key: bytes) -> bytes:
    """Return the key under which the label of this lock's key is stored."""
    return _OWNER_KEYS + key


def label_life(ttl: float) -> float:
    """Return the ttl of a label in seconds. The label is written again at half of it.

    The ttl is so long that a label need not be renewed with its lock. A release deletes the label,
    too. The label of a killed holder may outlive its lock, but its token no longer matches.
    """
    return 60.0 + 2 * ttl


def pack_owner(token: bytes, fence: int | None, since_ms: int, label: str) -> bytes:
    """Return the value of a label's key."""
    return b"%b %d %d %b" % (
        token[:_PREFIX],
        fence or 0,
        since_ms,
        label.encode("utf-8", "backslashreplace")[:MAX_LABEL],
    )


def read_owner(value: bytes, token: str) -> Owner | None:
    """Return the owner in the value of a label's key; None if it belongs to another token."""
    prefix, _, rest = value.partition(b" ")
    fence, _, rest = rest.partition(b" ")
    since, _, label = rest.partition(b" ")
    if prefix.decode("ascii", "replace") != token[:_PREFIX] or not (
        _is_number(fence) and _is_number(since)
    ):
        return None
    return Owner(label.decode("utf-8", "replace"), int(fence) or None, int(since) / 1000)


def printable_label(text: str) -> str:
    """Return a text that others chose, such as a label, as one printable line of bounded length."""
    return "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:MAX_LABEL]
    )


def _is_number(word: bytes) -> bool:
    """True for a number as `pack_owner` writes it.

    Python refuses to convert thousands of digits.
    """
    return word.isdigit() and len(word) <= 16


def checked_owner(owner: object) -> str | bool:
    """Return the option `owner` after a check.

    Raises:
        ConfigurationError: It is neither bool nor a str that fits on one line.
    """
    if isinstance(owner, bool):
        return owner
    if not isinstance(owner, str):
        raise ConfigurationError(f"owner must be True, False or a str, not {type(owner).__name__}")
    return _checked_text(owner, "False writes no label")


def checked_label(owner: object) -> str:
    """Return the argument `owner` of one lock after a check.

    Raises:
        ConfigurationError: It is no str that fits on one line.
    """
    if not isinstance(owner, str):
        raise ConfigurationError(f"owner must be a str or None, not {type(owner).__name__}")
    return _checked_text(owner, "None writes the manager's label")


def _checked_text(owner: str, instead: str) -> str:
    if not owner.strip() or not owner.isprintable():
        raise ConfigurationError(f"owner must be one line of text, got {owner!r}; {instead}")
    if len(owner.encode("utf-8", "backslashreplace")) > MAX_LABEL:
        raise ConfigurationError(
            f"owner must have at most {MAX_LABEL} bytes, got {len(owner):,} characters; shorten it"
        )
    return owner
