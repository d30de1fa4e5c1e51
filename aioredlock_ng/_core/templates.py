"""Names with placeholders, of which different values never make the same; it knows no lock, no call and no request."""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING

from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Placeholder", "SeparatorInText", "Template"]


class SeparatorInText(ValueError):
    """A text contains what is to end it, so that other texts could make the same name.

    Args:
        placeholder: Whose text it is.
        text: The text.
        separator: What follows it in the template.
    """

    def __init__(self, placeholder: Placeholder, text: str, separator: str) -> None:
        super().__init__(f"{placeholder} must not contain {separator!r}")
        self.placeholder = placeholder
        self.text = text
        self.separator = separator


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A value, the attributes to go along from there, and how its text is made: `!r`, `:04d`, both, or nothing."""

    name: str
    attributes: tuple[str, ...] = ()
    format: str = ""

    def __str__(self) -> str:
        return f"{{{'.'.join((self.name, *self.attributes))}{self.format}}}"

    def value(self, values: Mapping[str, object]) -> object:
        """What it stands for.

        Raises:
            AttributeError: The value lacks an attribute.
        """
        value = values[self.name]
        for attribute in self.attributes:
            value = getattr(value, attribute)
        return value


class Template:
    """`order:{order_id}`, `cart:{user.id}`: text and placeholders.

    Args:
        text: As for `str.format`, with names and attributes; no positions, no indexing, no placeholders in formats.

    Raises:
        ConfigurationError: It cannot be read, or two placeholders stand side by side.
    """

    def __init__(self, text: str) -> None:
        self.placeholders: list[Placeholder] = []
        self._literals = [""]
        try:
            pieces = list(Formatter().parse(text))
        except ValueError as error:
            raise ConfigurationError(
                f"{error}; write a brace that is meant as {{{{ or }}}}"
            ) from None
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
                    f"{{{field}{form}}} is not possible; a placeholder is a value or an attribute of it, like {{user.id}}"
                )
            self.placeholders.append(Placeholder(name, tuple(attributes), form))
            self._literals.append("")

    def fill(self, texts: Sequence[str]) -> str:
        """The name that these texts make, one for each placeholder, in order.

        Raises:
            SeparatorInText: One of them, but the last, contains the separator behind it.
        """
        name, last = self._literals[0], len(texts) - 1
        for index, (placeholder, text) in enumerate(zip(self.placeholders, texts, strict=True)):
            separator = self._literals[index + 1]
            # In the text, or half in it and half in the separator: where it ends would be a guess.
            if index < last and (text + separator).find(separator) < len(text):
                raise SeparatorInText(placeholder, text, separator)
            name += text + separator
        return name
