"""The name of a lock with placeholders for a request's values; it reads no request and knows no framework."""

from __future__ import annotations

from datetime import date, datetime
from enum import Enum
from typing import TYPE_CHECKING, Final
from uuid import UUID

from aioredlock_ng import ConfigurationError
from aioredlock_ng._core import templates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioredlock_ng._core.templates import Placeholder

__all__ = ["Template", "UnusableValue", "is_textual"]

_TEXTUAL: Final = (str, int, UUID, date, Enum)
"""Types whose equal values have one text. Not so decimals (1.0 and 1.00), floats, and times in different zones."""


class UnusableValue(ValueError):
    """A request's value cannot be in a lock's name; the message says why, and is fit for whoever sent the request."""


def is_textual(kind: type) -> bool:
    """Whether equal values of this type have one text, so that one value is one lock."""
    return issubclass(kind, _TEXTUAL) and not issubclass(kind, datetime)


class Template:
    """`order:{order_id}`, `cart:{user.id}`: text with placeholders, which are values and attributes of them.

    A value is written as it is. Different values never give one name: one that contains the text which separates it from
    the next placeholder is refused.

    Args:
        text: A brace that is meant is written {{ or }}. No positions, no indexing, no formats.

    Raises:
        ConfigurationError: No template, or two placeholders stand side by side.
    """

    def __init__(self, text: str) -> None:
        if text == "" or not isinstance(text, str):
            raise ConfigurationError(
                f"a lock's name must be a str like 'order:{{order_id}}', got {text!r}"
            )
        self.text = text
        try:
            self._template = templates.Template(text)
        except ConfigurationError as error:
            raise ConfigurationError(f"lock name {text!r}: {error}") from None
        for placeholder in self.placeholders:
            if placeholder.format or any(
                word.startswith("_") for word in (placeholder.name, *placeholder.attributes)
            ):
                raise ConfigurationError(
                    f"lock name {text!r}: {placeholder} is not possible; formats and private names have no place in it"
                )

    @property
    def placeholders(self) -> list[Placeholder]:
        """In the order in which they are written."""
        return self._template.placeholders

    def fill(self, values: Mapping[str, object]) -> str:
        """The lock's name for these values.

        Raises:
            UnusableValue: A value contains the separator behind it.
            ConfigurationError: A value is of a type that has no one text, or lacks an attribute.
        """
        try:
            return self._template.fill(
                [self._text_of(placeholder, values) for placeholder in self.placeholders]
            )
        except templates.SeparatorInText as error:
            raise UnusableValue(str(error)) from None

    def _text_of(self, placeholder: Placeholder, values: Mapping[str, object]) -> str:
        try:
            value = placeholder.value(values)
        except AttributeError as error:
            raise ConfigurationError(
                f"lock name {self.text!r}: {placeholder} does not exist: {error}"
            ) from error
        if not is_textual(type(value)):
            raise ConfigurationError(
                f"lock name {self.text!r}: {placeholder} is a {type(value).__name__}, equal values of which may have"
                " different texts; name an attribute of it, or make it a str, int, UUID, date or Enum"
            )
        return format(value)
