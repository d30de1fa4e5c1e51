"""The formats in which nodes store the readers of a read-write lock; see `parts/readers.lua`."""

from __future__ import annotations

from typing import Final

from aioredlock_ng._core.keys import OWN_KEYS
from aioredlock_ng._core.queue_formats import OFFER

__all__ = ["READERS", "READER_QUEUE_KEYS", "is_reader", "offer_to_reader"]

READERS: Final = OWN_KEYS + b"readers"
"""The value that `value_of` in the scripts returns for a key held by readers. No client writes this
value to a key."""

READER_QUEUE_KEYS: Final = OWN_KEYS + b"readers:"
"""Prefix of the key of a queue of readers. The lock's key follows."""

_READER = b":r#"


def is_reader(member: bytes) -> bool:
    return _READER in member


def offer_to_reader(member: bytes) -> bytes:
    """Return the entry that reserves a read-write lock for a waiting reader."""
    return OFFER + member
