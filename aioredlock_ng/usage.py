"""Errors that show the right line where an object is used in a way that it does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["AsyncWithOnly"]


class AsyncWithOnly:
    """Base of what is used by `async with`: a plain `with` and an `await` raise a `TypeError` that says so."""

    __slots__ = ()

    def _right_use(self) -> str:
        """The line to write instead."""
        raise NotImplementedError

    # A type checker that saw these would accept them.
    if not TYPE_CHECKING:

        def __enter__(self):
            raise TypeError(f"a {type(self).__name__} does not support a plain `with`; use {self._right_use()}")

        def __exit__(self, *exc_info):
            """Needed for `with` to call `__enter__`."""

        def __await__(self):
            raise TypeError(f"a {type(self).__name__} cannot be awaited; use {self._right_use()}")
