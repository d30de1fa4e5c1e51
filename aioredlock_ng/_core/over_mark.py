"""The over mark: the value of a lock's key from the end of the lease to the end of `min_hold`.

The mark keeps the lock taken. The mark contains the token of the lease, so that people can find the
last holder. The mark equals no token, so a late renewal, repair or release does not change the key.
"""

from __future__ import annotations

from typing import Final

from aioredlock_ng._core.keys import OWN_KEYS

__all__ = ["OVER", "over_mark", "without_mark"]

OVER: Final = OWN_KEYS + b"over:"
"""Prefix of the mark. The token follows."""


def over_mark(token: bytes) -> bytes:
    return OVER + token


def without_mark(value: bytes) -> tuple[bytes, bool]:
    """Return the token in a key's value, and True if the value has the mark."""
    return value.removeprefix(OVER), value.startswith(OVER)
