"""Form the name of a lock from a template and a request's values."""

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
"""The allowed types: two equal values of one of these types always give the same name.

Equal values of other types can give different names: the decimals 1.0 and 1.00, the floats 0.0 and
-0.0, or times in different zones.
"""


class UnusableValue(ValueError):
    """A request lacks a value for a lock's name or label, or has an invalid value.

    The message is for the client.
    """


def is_textual(kind: type) -> bool:
    """Return True if two equal values of this type always give the same name."""
    return issubclass(kind, _TEXTUAL) and not issubclass(kind, datetime)


class Template:
    """A text with placeholders for values and attributes: `order:{order_id}`, `cart:{user.id}`.

    Values with different texts never result in the same name. For this reason, a value's text must
    not contain the separator that follows its placeholder. The text of the last placeholder
    may contain any characters.

    Args:
        text: The template. A literal brace is written {{ or }}. A placeholder needs a public name.
            Positions, indexes and formats are not allowed.

    Raises:
        ConfigurationError: The text is not a template, a placeholder is not allowed, or there is no
            separator between two placeholders.
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
                    f"lock name {text!r}: {placeholder} is not possible; formats and private"
                    " names are not allowed"
                )

    @property
    def placeholders(self) -> list[Placeholder]:
        return self._template.placeholders

    def fill(self, values: Mapping[str, object]) -> str:
        """Return the lock's name for these values.

        Raises:
            UnusableValue: A value contains the separator that follows its placeholder.
            ConfigurationError: A value lacks an attribute that the template names. Or its type is
                not allowed, because two equal values of the type could give different names.
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
                f"lock name {self.text!r}: {placeholder} is a {type(value).__name__}, and"
                " two equal values of this type may give different names; name an attribute of"
                " it, or convert it to a str, int, UUID, date or Enum"
            )
        return format(value)
