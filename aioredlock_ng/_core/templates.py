"""Texts with placeholders. By default, different values never make the same filled-in text."""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING

from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Placeholder", "SeparatorInText", "Template"]


class SeparatorInText(ValueError):
    """The text for a placeholder contains the separator after this placeholder in the template.

    Other texts could then make the same filled-in text.
    """

    def __init__(self, placeholder: Placeholder, text: str, separator: str) -> None:
        super().__init__(f"{placeholder} must not contain {separator!r}")
        self.placeholder = placeholder
        self.text = text
        self.separator = separator


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder such as `{user.id!r:>8}`.

    Attributes:
        name: The name of the value.
        attributes: The path from the value to the attribute that is shown; empty to show the value.
        format: The conversion and the format specification, such as `!r:>8`; may be empty.
    """

    name: str
    attributes: tuple[str, ...] = ()
    format: str = ""

    def __str__(self) -> str:
        return f"{{{'.'.join((self.name, *self.attributes))}{self.format}}}"

    def value(self, values: Mapping[str, object]) -> object:
        """Return the object that the placeholder stands for.

        Raises:
            AttributeError: Raised if the value lacks an attribute of the path.
        """
        value = values[self.name]
        for attribute in self.attributes:
            value = getattr(value, attribute)
        return value


class Template:
    """A text with placeholders, such as `order:{order_id}` or `cart:{user.id}`.

    Args:
        text: A text as for `str.format`, with names and attributes. Positions, indexing, and
            placeholders in formats are not allowed.

    Raises:
        ConfigurationError: Raised if the text cannot be read, has a placeholder that is not
            allowed, or has two placeholders side by side.
    """

    def __init__(self, text: str) -> None:
        self.placeholders: list[Placeholder] = []
        self._literals = [""]
        try:
            pieces = list(Formatter().parse(text))
        except ValueError as error:
            raise ConfigurationError(f"{error}; write a literal brace as {{{{ or }}}}") from None
        for literal, field, spec, conversion in pieces:
            self._literals[-1] += literal
            if field is None:
                continue
            if self.placeholders and not self._literals[-1]:
                raise ConfigurationError(
                    "two placeholders stand side by side; put a separator between them"
                )
            name, *attributes = field.split(".")
            form = f"!{conversion}" * bool(conversion) + f":{spec}" * bool(spec)
            if not all(word.isidentifier() for word in (name, *attributes)) or "{" in form:
                raise ConfigurationError(
                    f"{{{field}{form}}} is not possible;"
                    " a placeholder is a value or an attribute of it, like {user.id}"
                )
            self.placeholders.append(Placeholder(name, tuple(attributes), form))
            self._literals.append("")

    def fill(self, texts: Sequence[str], *, distinct: bool = True) -> str:
        """Return the template with one text in place of each placeholder, in order.

        If `distinct` is True, different texts never give the same result.

        Raises:
            SeparatorInText: Raised if `distinct` is True and a text contains the separator after
                its placeholder. The text for the last placeholder may contain it.
        """
        name, last = self._literals[0], len(texts) - 1
        for index, (placeholder, text) in enumerate(zip(self.placeholders, texts, strict=True)):
            separator = self._literals[index + 1]
            # For example, the text "a:" and the separator "::" make "a:::", in which the end of the
            # text is ambiguous.
            if distinct and index < last and (text + separator).find(separator) < len(text):
                raise SeparatorInText(placeholder, text, separator)
            name += text + separator
        return name
