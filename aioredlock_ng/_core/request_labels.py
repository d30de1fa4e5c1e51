"""Make the label of a lock's holder from the values of a call or a request."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, get_origin

from aioredlock_ng._core.owners import checked_label
from aioredlock_ng._core.templates import Placeholder, Template
from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["LabelTemplate", "UnusableLabel", "label_template", "labels_of_calls"]

_EMPTY = inspect.Parameter.empty
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class UnusableLabel(ValueError):
    """The text that a template gives for one call or request cannot be a label."""


def label_template(owner: object) -> LabelTemplate | None:
    """Return the template for the argument `owner` of a decorator; None if `owner` is None.

    Raises:
        ConfigurationError: Raised if `owner` is neither a text, nor a function, nor None. Raised
            also if the text is not a valid template, or if its fixed parts cannot be in a label.
    """
    if owner is None:
        return None
    if isinstance(owner, str):
        return LabelTemplate(*_text(owner))
    if not callable(owner) or isinstance(owner, type) or get_origin(owner) is not None:
        none = "; for no labels, make the manager with owner=False" if owner is False else ""
        raise ConfigurationError(
            "owner must be a text like 'job {job_id}', a function that returns the label, or None"
            f" for the manager's label; got {owner!r}{none}"
        )
    return LabelTemplate(*_function(owner))


class LabelTemplate:
    """A label with placeholders for values.

    Args:
        placeholders: The values that the label needs. If a user's function makes the label, these
            are its parameters without a default.
        make: Returns the label for the values, or None for the manager's label.
    """

    def __init__(
        self,
        placeholders: list[Placeholder],
        make: Callable[[Mapping[str, object]], object],
    ) -> None:
        self.placeholders = placeholders
        self._make = make

    def label(self, values: Mapping[str, object]) -> str | None:
        """Return the label for these values; None for the manager's label.

        An error of the user's function propagates.

        Raises:
            UnusableLabel: Raised if the label is not one printable line of at most 200 bytes.
            ConfigurationError: Raised if a value lacks an attribute or does not accept its format,
                or if the function returns neither a str nor None.
        """
        made = self._make(values)
        if made is None:
            return None
        if not isinstance(made, str):
            raise ConfigurationError(
                f"owner must return a str or None, not {type(made).__name__}; convert it by str()"
            )
        try:
            return checked_label(made)
        except ConfigurationError as error:
            raise UnusableLabel(str(error)) from None


def labels_of_calls(
    owner: LabelTemplate | None, function: Callable[..., object], where: str
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], str | None]:
    """Return a function that makes the label from the arguments of a call.

    The returned function raises `ConfigurationError` if `LabelTemplate.label` raises it, or if the
    text cannot be a label.

    Args:
        owner: The template; None for the manager's label.
        function: The decorated function.
        where: The name of the decorator, for error messages.

    Raises:
        ConfigurationError: Raised if a placeholder names no parameter of the function.
    """
    if owner is None:
        return lambda args, kwargs: None
    signature = inspect.signature(function)
    where = f"{where} of {getattr(function, '__qualname__', repr(function))}()"
    parameters = [name for name, one in signature.parameters.items() if one.kind not in _MANY]
    for placeholder in owner.placeholders:
        if placeholder.name not in parameters:
            raise ConfigurationError(
                f"{where}: owner: {placeholder} names no parameter; there are:"
                f" {', '.join(parameters) or 'none'}"
            )

    def label(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            return owner.label(bound.arguments)
        except UnusableLabel as error:
            raise ConfigurationError(f"{where}: {error}") from None

    return label


def _text(text: str) -> tuple[list[Placeholder], Callable[[Mapping[str, object]], object]]:
    try:
        template = Template(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"owner {text!r}: {error}") from None
    # Each placeholder is filled with one character, so only the fixed parts of the text can cause
    # an error here.
    checked_label(template.fill(["x"] * len(template.placeholders), distinct=False))

    def make(values: Mapping[str, object]) -> str:
        texts = []
        for placeholder in template.placeholders:
            try:
                texts.append(f"{{0{placeholder.format}}}".format(placeholder.value(values)))
            except (AttributeError, TypeError, ValueError) as error:
                raise ConfigurationError(
                    f"owner {text!r}: {placeholder} has no value for the label: {error}"
                ) from error
        return template.fill(texts, distinct=False)

    return template.placeholders, make


def _function(
    function: Callable[..., object],
) -> tuple[list[Placeholder], Callable[[Mapping[str, object]], object]]:
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"owner is called and never awaited; {function!r} is a coroutine function; use a plain"
            " function"
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"owner {function!r} does not show its parameters; write a lambda around it"
        ) from None
    needed = [one for one in parameters if one.default is _EMPTY and one.kind not in _MANY]
    for parameter in needed:
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigurationError(
                f"owner is called with named arguments, and {parameter.name} of {function!r} is"
                " positional-only; write a lambda around it"
            )
    names = [parameter.name for parameter in needed]

    def make(values: Mapping[str, object]) -> object:
        return function(**{name: values[name] for name in names})

    return [Placeholder(name) for name in names], make
