"""Make fresh tokens from the randomness of the operating system, many in one system call."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["system_tokens"]

TOKEN_BYTES = 16
"""Bytes of a token. With 128 bits, no token can be guessed, and no two are equal by chance."""

_AT_ONCE = 256
"""Tokens per system call. Each manager has its own buffer, and refuses to work after a fork. So no
two processes use the same tokens."""


def system_tokens() -> Iterator[bytes]:
    """Yield fresh tokens of 32 hexadecimal digits."""
    step = 2 * TOKEN_BYTES
    while True:
        digits = os.urandom(TOKEN_BYTES * _AT_ONCE).hex().encode()
        yield from [digits[start : start + step] for start in range(0, len(digits), step)]
