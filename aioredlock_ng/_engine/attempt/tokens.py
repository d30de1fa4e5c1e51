"""Fresh tokens from the system's randomness, drawn many at a time; it never gives one out twice."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["system_tokens"]

TOKEN_BYTES = 16
"""128 bits: nobody guesses or repeats one."""

_AT_ONCE = 256
"""Tokens per system call. One manager draws from one buffer, and a manager refuses to work after a fork."""


def system_tokens() -> Iterator[bytes]:
    """Yield tokens of 32 hexadecimal digits, each never given out before."""
    step = 2 * TOKEN_BYTES
    while True:
        digits = os.urandom(TOKEN_BYTES * _AT_ONCE).hex().encode()
        yield from [digits[start : start + step] for start in range(0, len(digits), step)]
