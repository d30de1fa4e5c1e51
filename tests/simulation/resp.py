"""The server's side of RESP3, for the messages that the library uses."""

from __future__ import annotations

from typing import Any

from aioredlock_ng._core.votes import Refusal

__all__ = ["encode", "invalidation", "message", "subscribed"]


def encode(reply: Any) -> bytes:
    """Encode the answer of a script."""
    if type(reply) is int:
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, Refusal):
        return b"-%b\r\n" % str(reply).encode()
    assert isinstance(reply, list), f"a script cannot return {reply!r}"
    return b"*%d\r\n%b" % (len(reply), b"".join(map(encode, reply)))


def invalidation(keys: list[bytes] | None) -> bytes:
    """Encode the push message that tracked keys have changed. None stands for all keys."""
    what = b"_\r\n" if keys is None else encode(keys)
    return b">2\r\n$10\r\ninvalidate\r\n" + what


def message(channel: bytes, payload: bytes) -> bytes:
    """Encode the push message that delivers a published message."""
    return b">3\r\n" + b"".join(map(encode, (b"message", channel, payload)))


def subscribed(channel: bytes) -> bytes:
    """Encode the push message that confirms the first subscription of a connection."""
    return b">3\r\n" + b"".join(map(encode, (b"subscribe", channel, 1)))
