"""The server's side of RESP3, as far as the library speaks it."""

from __future__ import annotations

from typing import Any

from aioredlock_ng._core.votes import Refusal

__all__ = ["encode", "invalidation", "message", "subscribed"]


def encode(reply: Any) -> bytes:
    """A script's answer on the wire."""
    if type(reply) is int:
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, Refusal):
        return b"-%b\r\n" % str(reply).encode()
    assert isinstance(reply, list), f"no answer of a script: {reply!r}"
    return b"*%d\r\n%b" % (len(reply), b"".join(map(encode, reply)))


def invalidation(keys: list[bytes] | None) -> bytes:
    """The push message that tracked keys changed; None: all of them."""
    what = b"_\r\n" if keys is None else encode(keys)
    return b">2\r\n$10\r\ninvalidate\r\n" + what


def message(channel: bytes, payload: bytes) -> bytes:
    """The push that delivers a published message."""
    return b">3\r\n" + b"".join(map(encode, (b"message", channel, payload)))


def subscribed(channel: bytes) -> bytes:
    """The push that confirms the first subscription of a connection."""
    return b">3\r\n" + b"".join(map(encode, (b"subscribe", channel, 1)))
