"""The name of a lock with placeholders for a request's values; it reads no request and knows no framework."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from string import Formatter
from typing import TYPE_CHECKING, Final
from uuid import UUID

from aioredlock_ng import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Placeholder", "Template", "UnusableValue", "is_textual"]

_TEXTUAL: Final = (str, int, UUID, date, Enum)
"""Types whose equal values have one text. Not so decimals (1.0 and 1.00), floats, and times in different zones."""


class UnusableValue(ValueError):
    """A request's value cannot be in a lock's name; the message says why, and is fit for whoever sent the request."""


def is_textual(kind: type) -> bool:
    """Whether equal values of this type have one text, so that one value is one lock."""
    return issubclass(kind, _TEXTUAL) and not issubclass(kind, datetime)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A value, and the attributes to go along from there."""

    name: str
    attributes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "{" + ".".join((self.name, *self.attributes)) + "}"


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
            raise ConfigurationError(f"a lock's name must be a str like 'order:{{order_id}}', got {text!r}")
        self.text = text
        self._literals = [""]
        self.placeholders: list[Placeholder] = []
        try:
            pieces = list(Formatter().parse(text))
        except ValueError as error:
            raise ConfigurationError(f"lock name {text!r}: {error}; write a brace that is meant as {{{{ or }}}}") from None
        for literal, field, spec, conversion in pieces:
            self._literals[-1] += literal
            if field is None:
                continue
            if self.placeholders and not self._literals[-1]:
                raise ConfigurationError(f"lock name {text!r}: put a separator between placeholders that stand side by side")
            name, *attributes = field.split(".")
            if spec or conversion or not all(w.isidentifier() and not w.startswith("_") for w in (name, *attributes)):
                raise ConfigurationError(
                    f"lock name {text!r}: {{{field}}} is not possible; a placeholder is a value or an attribute of it, like"
                    " {order_id} or {order.id}"
                )
            self.placeholders.append(Placeholder(name, tuple(attributes)))
            self._literals.append("")

    def fill(self, values: Mapping[str, object]) -> str:
        """The lock's name for these values.

        Raises:
            UnusableValue: A value contains the separator behind it.
            ConfigurationError: A value is of a type that has no one text, or lacks an attribute.
        """
        filled, last = self._literals[0], len(self.placeholders) - 1
        for index, placeholder in enumerate(self.placeholders):
            separator = self._literals[index + 1]
            text = self._text_of(placeholder, values)
            # In the value, or half in it and half in the separator: where the value ends would be a guess.
            if index < last and (text + separator).find(separator) < len(text):
                raise UnusableValue(f"{placeholder} must not contain {separator!r}")
            filled += text + separator
        return filled

    def _text_of(self, placeholder: Placeholder, values: Mapping[str, object]) -> str:
        value = values[placeholder.name]
        for attribute in placeholder.attributes:
            try:
                value = getattr(value, attribute)
            except AttributeError as error:
                raise ConfigurationError(f"lock name {self.text!r}: {placeholder} does not exist: {error}") from error
        if not is_textual(type(value)):
            raise ConfigurationError(
                f"lock name {self.text!r}: {placeholder} is a {type(value).__name__}, equal values of which may have"
                " different texts; name an attribute of it, or make it a str, int, UUID, date or Enum"
            )
        return format(value)
