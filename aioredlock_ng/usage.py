"""Raise errors that show the right code when an object is used in an unsupported way."""

from __future__ import annotations

from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    Use = Literal["with", "async with", "await", "acquire"]

__all__ = ["call_of", "unsupported"]

C = TypeVar("C")

_TRAPS: Final[dict[Use, tuple[str, tuple[str, ...]]]] = {
    "with": ("does not support a plain `with`", ("__enter__", "__exit__")),
    "async with": ("does not support `async with`", ("__aenter__", "__aexit__")),
    "await": ("cannot be awaited", ("__await__",)),
    "acquire": ("has no acquire", ("acquire", "try_acquire")),
}
"""The words of the error and the methods that raise the error, by wrong use."""


def call_of(method: str, name: str | bytes, more: str = "") -> str:
    """Return the code that makes an object, such as `redlock.lock('order')`. A long name is cut."""
    return f"redlock.{method}({shortened(name)}{more})"


def unsupported(*uses: Use, instead: Callable[[Any], str]) -> Callable[[type[C]], type[C]]:
    """Make wrong uses of a class raise an error that shows the right code.

    The error is a `TypeError`, or an `AttributeError` for "acquire". The methods that raise it are
    hidden from type checkers, so a type checker refuses the wrong uses as well.

    Args:
        uses: The wrong uses. "acquire" means the methods `acquire` and `try_acquire`.
        instead: Returns the right code for an object of the class.
    """

    def decorate(kind: type[C]) -> type[C]:
        for use in uses:
            words, names = _TRAPS[use]
            error = AttributeError if use == "acquire" else TypeError
            method = _raising(error, words, instead)
            for name in names:
                # A property raises the error when its name is looked up, so `hasattr` is False.
                setattr(kind, name, property(method) if use == "acquire" else method)
        return kind

    return decorate


def _raising(
    error: type[Exception], words: str, instead: Callable[[Any], str]
) -> Callable[..., NoReturn]:
    def method(self: object, *_: object) -> NoReturn:
        raise error(f"{type(self).__name__} {words}; use {instead(self)}")

    return method
