"""The rules that all decoders of replies share.

A server may be broken, hostile, or no Redis at all. A reply that does not fit its script becomes a
`Garbled`, which is no vote. The effect of the script on that node then counts as unknown.

RESP3 has booleans and doubles that are equal to integers in Python (`True == 1`, `1.0 == 1`).
Therefore decoders compare types exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aioredlock_ng._core.votes import Garbled

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LARGEST", "Asked", "Call", "are", "garbled", "is_int", "is_pair", "kind_of"]

LARGEST = 2**63 - 1
"""The largest integer of RESP. The big numbers of RESP3 are refused, because the conversion of a
larger integer to seconds might overflow."""


class Asked(Protocol):
    """The part of a request that `garbled` needs."""

    @property
    def step(self) -> str:
        """Name the request, for messages."""


class Call(Protocol):
    """The part of a command that decoders need."""

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Return KEYS of the script."""

    @property
    def args(self) -> tuple[bytes | int, ...]:
        """Return ARGV of the script."""


def garbled(request: Asked, reply: Any) -> Garbled:
    """Return the record of a reply that does not fit the request."""
    return Garbled(f"{request.step} was answered with {kind_of(reply)}, which does not fit it")


def kind_of(reply: Any) -> str:
    """Name the kind of a reply, for messages.

    The contents may be tokens and stored values, which messages must not show.
    """
    if reply is None:
        return "nil"
    if isinstance(reply, (list, dict, set)):
        return f"{type(reply).__name__} of {len(reply)}"
    return type(reply).__name__


def is_int(item: Any, least: int, most: int = LARGEST) -> bool:
    """Return True for an integer within these bounds."""
    return type(item) is int and least <= item <= most


def is_pair(reply: Any, first: int) -> bool:
    """Return True for a list of two items that begins with this integer."""
    return type(reply) is list and len(reply) == 2 and type(reply[0]) is int and reply[0] == first


def are(reply: Any, most: int, fits: Callable[[Any], bool] | None) -> bool:
    """Return True for a list of at most `most` items for which `fits` is true.

    If `fits` is None, all items fit.
    """
    return type(reply) is list and len(reply) <= most and (fits is None or all(map(fits, reply)))
