"""Map lock names to a small number of kinds, which serve as labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOST_KINDS", "OTHER", "Kinds"]

MOST_KINDS: Final = 100
"""Largest number of kinds per sink.

Each kind adds time series to every metric that has the label `kind`.
"""

OTHER: Final = "other"
"""The kind that replaces every new kind after the first `MOST_KINDS`."""


class Kinds:
    """The mapping from lock names to kinds.

    Args:
        kind: Returns the kind of a name. None means that there are no kinds.

    Raises:
        ConfigurationError: `kind` is not callable.
    """

    def __init__(self, kind: Callable[[str], str] | None) -> None:
        if kind is not None and not callable(kind):
            raise ConfigurationError(
                "kind must be a callable that returns the kind of a lock's name, or None, not"
                f" {type(kind).__name__}"
            )
        self._kind = kind
        self._known: set[str] = set()

    @property
    def wanted(self) -> bool:
        """True if the application has given a function for kinds."""
        return self._kind is not None

    def of(self, resource: str, *, shared: bool = False) -> str:
        """Return the kind of this name; "" if there is no function for kinds.

        Args:
            resource: The lock's name.
            shared: True for a read lease of a read-write lock. The result is then the kind of the
                name, followed by " read".
        """
        if self._kind is None:
            return ""
        kind = str(self._kind(resource)) + " read" * shared
        if kind not in self._known:
            if len(self._known) >= MOST_KINDS:
                return OTHER
            self._known.add(kind)
        return kind
