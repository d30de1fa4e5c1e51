"""Convert texts of a request to values for a lock's name, and check the converters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

from aioredlock_ng import ConfigurationError

from ._template import UnusableValue, is_textual

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["check_makers", "values_of"]


def check_makers(argument: str, makers: Any, bare: set[str]) -> None:
    """Check the argument `path` or `query` of a decorator, as far as possible without a request.

    Args:
        argument: Name of the argument in errors.
        makers: The converters, as the user gave them.
        bare: Names of the placeholders without attributes. The converter's result for such a
            placeholder becomes a part of the lock's name.

    Raises:
        ConfigurationError: `makers` is not a mapping, a converter cannot be called, or its results
            have an unsupported type.
    """
    if not isinstance(makers, Mapping):
        raise ConfigurationError(
            f'{argument} must be a mapping like {{"id": int}}, not {type(makers).__name__}'
        )
    for name, make in makers.items():
        if not callable(make):
            raise ConfigurationError(
                f"{argument} must contain a converter from the text of {name} to a value,"
                f" like {{{name!r}: int}}; got {make!r}"
            )
        if name in bare and isinstance(make, type) and (make is date or not is_textual(make)):
            raise ConfigurationError(
                f"{argument} converts {name} to a {make.__name__}; the result must be a str,"
                " int, UUID, date or Enum: use int, str, UUID, date.fromisoformat, an Enum"
                " or your own function"
            )


def values_of(
    *sources: tuple[Mapping[str, str], Mapping[str, Callable[[str], object]]],
) -> dict[str, object]:
    """Return a dict with the value of each placeholder.

    Args:
        sources: Parts of the request, each with the converters of its placeholders.

    Raises:
        UnusableValue: The request has no value for a placeholder, or a converter raises ValueError.
    """
    values: dict[str, object] = {}
    for given, makers in sources:
        for name, make in makers.items():
            if name not in given:
                raise UnusableValue(f"{name} is missing")
            try:
                values[name] = make(given[name])
            except ValueError as error:
                raise UnusableValue(f"{name} is not possible: {error}") from error
    return values
