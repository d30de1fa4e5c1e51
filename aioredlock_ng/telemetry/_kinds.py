"""The kind of a lock as a label: few values, whatever names and whatever function an application has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOST_KINDS", "OTHER", "Kinds"]

MOST_KINDS: Final = 100
"""Kinds that one sink tells apart. Each is a time series of its own in every metric that has it."""

OTHER: Final = "other"
"""The kind of all that come later."""


class Kinds:
    """What a lock's name is counted under.

    Args:
        kind: From the name to its kind; None: no kinds.

    Raises:
        ConfigurationError: `kind` is not callable.
    """

    def __init__(self, kind: Callable[[str], str] | None) -> None:
        if kind is not None and not callable(kind):
            raise ConfigurationError(
                f"kind must be a callable from a lock's name to its kind, or None, not {type(kind).__name__}"
            )
        self._kind = kind
        self._known: set[str] = set()

    @property
    def wanted(self) -> bool:
        """True where there is a function."""
        return self._kind is not None

    def of(self, resource: str) -> str:
        """Return the kind of this name; "" where none is wanted."""
        if self._kind is None:
            return ""
        kind = str(self._kind(resource))
        if kind not in self._known:
            if len(self._known) >= MOST_KINDS:
                return OTHER
            self._known.add(kind)
        return kind
