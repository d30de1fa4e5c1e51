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
    "is_label_of",
    "label_life",
    "owner_key",
    "pack_owner",
    "printable_label",
    "read_owner",
]

MAX_LABEL = 200
"""Largest number of bytes of a label in UTF-8."""

_PREFIX = 16
"""Number of characters of the token with which the stored value of a label begins. These characters
show whether the label belongs to the present holder."""

_OWNER_KEYS = OWN_KEYS + b"owner:"


def owner_key(key: bytes) -> bytes:
    """Return the key under which the label for the lock `key` is stored."""
    return _OWNER_KEYS + key


def label_life(ttl: float) -> float:
    """Return the ttl of a label in seconds. The holder writes the label again after half this time.

    The ttl is so long that most renewals of the lock need not write the label. If the holder is
    killed, the label may outlive the lock. After the next client has got the lock, `read_owner`
    ignores that label.
    """
    return 60.0 + 2 * ttl


def pack_owner(token: bytes, fence: int | None, since_ms: int, label: str) -> bytes:
    return b"%b %d %d %b" % (
        token[:_PREFIX],
        fence or 0,
        since_ms,
        label.encode("utf-8", "backslashreplace")[:MAX_LABEL],
    )


def is_label_of(value: bytes, token: bytes) -> bool:
    """Return True if the stored value of a label belongs to this token."""
    return value.startswith(token[:_PREFIX] + b" ")


def read_owner(value: bytes, token: str) -> Owner | None:
    """Return the owner that the stored value of a label names.

    Return None if the value is damaged, or if the label belongs to another token than `token`.
    """
    prefix, _, rest = value.partition(b" ")
    fence, _, rest = rest.partition(b" ")
    since, _, label = rest.partition(b" ")
    if prefix.decode("ascii", "replace") != token[:_PREFIX] or not (
        _is_number(fence) and _is_number(since)
    ):
        return None
    return Owner(label.decode("utf-8", "replace"), int(fence) or None, int(since) / 1000)


def printable_label(text: str) -> str:
    """Return a text of unknown origin as one printable line of at most `MAX_LABEL` characters."""
    return "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:MAX_LABEL]
    )


def _is_number(word: bytes) -> bool:
    """True for a number of at most 16 digits.

    A damaged label may have thousands of digits, which Python refuses to convert.
    """
    return word.isdigit() and len(word) <= 16


def checked_owner(owner: object) -> str | bool:
    """Check the option `owner`, and return it.

    Raises:
        ConfigurationError: Raised if the option is neither a bool nor one line of text of at most
            `MAX_LABEL` bytes.
    """
    if isinstance(owner, bool):
        return owner
    if not isinstance(owner, str):
        raise ConfigurationError(f"owner must be True, False or a str, not {type(owner).__name__}")
    return _checked_text(owner)


def checked_label(owner: object) -> str:
    """Check the argument `owner` of one lock, and return it.

    Raises:
        ConfigurationError: Raised if the argument is not one line of text of at most `MAX_LABEL`
            bytes.
    """
    if not isinstance(owner, str):
        raise ConfigurationError(f"owner must be a str or None, not {type(owner).__name__}")
    return _checked_text(owner)


def _checked_text(owner: str) -> str:
    if not owner.strip() or not owner.isprintable():
        # The command line shows this error too, so the error has no value of Python.
        raise ConfigurationError(
            f"owner must be one line of text, got {owner!r}; leave it out for the usual label"
        )
    if len(owner.encode("utf-8", "backslashreplace")) > MAX_LABEL:
        raise ConfigurationError(
            f"owner must have at most {MAX_LABEL} bytes, got {len(owner):,} characters; shorten it"
        )
    return owner
