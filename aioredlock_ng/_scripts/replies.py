"""Decodes each script's reply into a record, in one place before anything else reads it; pure.

A server may be broken, hostile, or no Redis at all. A reply that does not fit its script is no
vote: it becomes a `Garbled`, and what the script did on that node counts as unknown. So no code
above this module meets a list of the wrong length, a number of the wrong type, or nil.

A decoder returns None for a reply that does not fit.

RESP3 has booleans and doubles that Python takes for integers (`True == 1`, `1.0 == 1`): types are
compared exactly. The shapes themselves are described in the header of each Lua file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aioredlock_ng._core.votes import Garbled

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LARGEST", "Asked", "Call", "are", "garbled", "is_int", "kind_of", "starts"]

LARGEST = 2**63 - 1
"""The largest integer of RESP. A big number beyond it would overflow a float of seconds."""


class Asked(Protocol):
    """What the words for a reply need to know of the request."""

    @property
    def step(self) -> str:
        """Name what is asked, for messages."""


class Call(Protocol):
    """What a shape needs to know of the command."""

    @property
    def keys(self) -> tuple[bytes, ...]:
        """KEYS of the script."""

    @property
    def args(self) -> tuple[bytes | int, ...]:
        """ARGV of the script."""


def garbled(request: Asked, reply: Any) -> Garbled:
    """Return what stands for a reply that does not fit: the words name its kind, and nothing that is in it."""
    return Garbled(f"{request.step} was answered with {kind_of(reply)}, which does not fit it")


def kind_of(reply: Any) -> str:
    """Name the kind of a reply for messages; its contents may be tokens and stored values."""
    if reply is None:
        return "nil"
    if isinstance(reply, (list, dict, set)):
        return f"{type(reply).__name__} of {len(reply)}"
    return type(reply).__name__


def is_int(item: Any, least: int, most: int = LARGEST) -> bool:
    return type(item) is int and least <= item <= most


def starts(reply: Any, length: int, first: int) -> bool:
    return (
        type(reply) is list and len(reply) == length and type(reply[0]) is int and reply[0] == first
    )


def are(reply: Any, most: int, fits: Callable[[Any], bool] | None) -> bool:
    return type(reply) is list and len(reply) <= most and (fits is None or all(map(fits, reply)))
