"""Convert numeric arguments as aioredlock does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

from aioredlock_ng import ConfigurationError
from aioredlock_ng.options import positive_seconds, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["count_of", "seconds_of"]

_Number = TypeVar("_Number", int, float)


def count_of(name: str, value: object) -> int:
    """Convert an argument to a whole number of at least 1.

    A larger number than `sys.maxsize` could have no product with a time in seconds.
    """
    return whole_number(name, _number(int, name, value), 1, sys.maxsize)


def seconds_of(name: str, value: object) -> float:
    """Convert an argument to a positive time in seconds."""
    return positive_seconds(name, _number(float, name, value))


def _number(kind: Callable[[Any], _Number], name: str, value: object) -> _Number:
    """Convert a number as aioredlock does. A text such as "3" is also a number.

    An invalid value raises `TypeError` or `ValueError`, as in aioredlock.
    """
    try:
        return kind(value)
    except TypeError:
        raise TypeError(f"{name} must be a number, not {type(value).__name__}") from None
    except (ValueError, OverflowError):
        raise ConfigurationError(f"{name} must be a number, not {value!r}") from None
