"""Raise errors that show the right code when an object is used in an unsupported way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["async_with_only"]

C = TypeVar("C")


def async_with_only(right_use: Callable[[Any], str]) -> Callable[[type[C]], type[C]]:
    """Make a plain `with` and an `await` raise a `TypeError` that shows the right code.

    A type checker does not see these methods, so it refuses both uses as well.

    Args:
        right_use: Returns the right code for an object of the class.
    """

    def decorate(kind: type[C]) -> type[C]:
        def enter(self: C) -> NoReturn:
            raise TypeError(
                f"a {kind.__name__} does not support a plain `with`; use {right_use(self)}"
            )

        def exits(self: C, *exc_info: object) -> None:
            """Exist only so that a `with` calls `__enter__`. Never called."""

        def awaits(self: C) -> NoReturn:
            raise TypeError(f"a {kind.__name__} cannot be awaited; use {right_use(self)}")

        for name, method in (("__enter__", enter), ("__exit__", exits), ("__await__", awaits)):
            setattr(kind, name, method)
        return kind

    return decorate
