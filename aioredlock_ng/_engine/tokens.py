"""Fresh tokens from the system's randomness, drawn many at a time; it never gives one out twice."""

from __future__ import annotations

import os

__all__ = ["SystemTokens"]

TOKEN_BYTES = 16
"""128 bits: nobody guesses or repeats one."""

_AT_ONCE = 256
"""Tokens per system call. One manager draws from one buffer, and a manager refuses to work after a fork."""


class SystemTokens:
    """Call it for a token of 32 hexadecimal digits."""

    __slots__ = ("_tokens",)

    def __init__(self) -> None:
        self._tokens: list[bytes] = []

    def __call__(self) -> bytes:
        """A token never given out before."""
        if not self._tokens:
            digits = os.urandom(TOKEN_BYTES * _AT_ONCE).hex().encode()
            step = 2 * TOKEN_BYTES
            self._tokens = [digits[start : start + step] for start in range(0, len(digits), step)]
        return self._tokens.pop()
