"""Errors that show the right line where an object is used in a way that it does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["async_with_only"]

C = TypeVar("C")


def async_with_only(right_use: Callable[[Any], str]) -> Callable[[type[C]], type[C]]:
    """Let a plain `with` and an `await` of a class's objects raise a `TypeError` that says what to write.

    A type checker does not see these methods, so it refuses both uses too.

    Args:
        right_use: What to write instead, for an object of the class.
    """

    def decorate(kind: type[C]) -> type[C]:
        def enter(self: C) -> NoReturn:
            raise TypeError(
                f"a {kind.__name__} does not support a plain `with`; use {right_use(self)}"
            )

        def exits(self: C, *exc_info: object) -> None:
            """Never called; without it a `with` does not call `__enter__` either."""

        def awaits(self: C) -> NoReturn:
            raise TypeError(f"a {kind.__name__} cannot be awaited; use {right_use(self)}")

        for name, method in (("__enter__", enter), ("__exit__", exits), ("__await__", awaits)):
            setattr(kind, name, method)
        return kind

    return decorate
