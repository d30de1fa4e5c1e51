"""Who holds a lock, in words for people: a label beside the lock's key, never in its value; it never sends anything."""

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
"""Bytes of a label in UTF-8: it is written beside every lock that lives long enough."""

_PREFIX = 16
"""Characters of the token by which a label is known to belong to the lock's present holder."""

_OWNER_KEYS = OWN_KEYS + b"owner:"


def owner_key(key: bytes) -> bytes:
    """Where the label of a lock's key is."""
    return _OWNER_KEYS + key


def label_life(ttl: float) -> float:
    """Seconds that a label lives unless it is written again, which happens at half of that. It is deleted with the lock.

    So long that it need not be renewed with the lock. What a killed holder leaves is no longer its lock's: readers compare.
    """
    return 60.0 + 2 * ttl


def pack_owner(token: bytes, fence: int | None, since_ms: int, label: str) -> bytes:
    """What is written."""
    return b"%b %d %d %b" % (
        token[:_PREFIX],
        fence or 0,
        since_ms,
        label.encode("utf-8", "backslashreplace")[:MAX_LABEL],
    )


def read_owner(value: bytes, token: str) -> Owner | None:
    """What was written, if it was by who holds the lock with this token."""
    prefix, _, rest = value.partition(b" ")
    fence, _, rest = rest.partition(b" ")
    since, _, label = rest.partition(b" ")
    if prefix.decode("ascii", "replace") != token[:_PREFIX] or not (
        _is_number(fence) and _is_number(since)
    ):
        return None
    return Owner(label.decode("utf-8", "replace"), int(fence) or None, int(since) / 1000)


def printable_label(text: str) -> str:
    """Text that others chose, as a label may be: one printable line of bounded length."""
    return "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:MAX_LABEL]
    )


def _is_number(word: bytes) -> bool:
    """Of those that we write: others may be too long to be read."""
    return word.isdigit() and len(word) <= 16


def checked_owner(owner: object) -> str | bool:
    """The option `owner`.

    Raises:
        ConfigurationError: Neither bool nor a str that fits on one line.
    """
    if isinstance(owner, bool):
        return owner
    if not isinstance(owner, str):
        raise ConfigurationError(f"owner must be True, False or a str, not {type(owner).__name__}")
    return _checked_text(owner, "False writes no label")


def checked_label(owner: object) -> str:
    """The argument `owner` of one lock.

    Raises:
        ConfigurationError: No str that fits on one line.
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
