"""The points of the code at which a test may declare a lease lost.

`aioredlock_ng.testing.lose_at` adds an observer. Without observers, reaching a point does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Point", "observers", "reached"]

Point = Literal["acquired", "checked", "released"]
"""The points at which `lose_at` can declare a lease lost."""

observers: list[Callable[[Point, Any], None]] = []
"""Functions that take a point and a `Lease`. The task or thread that reaches a point calls each of
these functions. At "acquired" they must not raise, because the caller would not get the lease."""


def reached(point: Point, lease: object) -> None:
    for observer in tuple(observers):
        observer(point, lease)
