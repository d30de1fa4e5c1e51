"""Define the decorator behind `Redlock.guard`, which names a lock by the arguments of a call."""

from __future__ import annotations

import functools
import inspect
import re
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypedDict, TypeVar

from aioredlock_ng._core.templates import SeparatorInText, Template
from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from aioredlock_ng._core.templates import Placeholder
    from aioredlock_ng.lock import Lock, OnLost

__all__ = ["Guard", "LockOptions", "NameTemplate", "check_guard", "guarded"]

P = ParamSpec("P")
R = TypeVar("R")

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""The address in the default text of an object. It differs in every process."""

_WITHOUT_TEXT = (bytes, bytearray, memoryview, set, frozenset)
"""Types without a stable text.

The order of a set differs between processes. The text of bytes is not the name that bytes have in
other places.
"""

_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class LockOptions(TypedDict, total=False):
    """Arguments of `Redlock.lock` besides the names, with the same meaning."""

    ttl: float | None
    blocking_timeout: float | None
    auto_extend: bool
    max_hold: float | None
    on_lost: OnLost
    owner: str | None
    fail_fast: bool
    fair: bool
    min_hold: float | None


class Guard(Protocol):
    """A decorator of coroutine functions that keeps their signature."""

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        """Return the decorated function."""


class NameTemplate:
    """A lock name with placeholders for the arguments of one function.

    Args:
        template: A text as for `str.format`, with parameters of the function and their attributes.
            Positions and indexing are not allowed.
        function: The function with these parameters.
        decorator: Name of the decorator in errors.

    Raises:
        ConfigurationError: A placeholder names no parameter, or two placeholders stand side by
            side.
    """

    def __init__(
        self, template: str, function: Callable[..., object], decorator: str = "guard"
    ) -> None:
        self._signature = inspect.signature(function)
        self._called = getattr(function, "__qualname__", repr(function))
        self._where = f"{decorator}({template!r}) of {self._called}()"
        try:
            self._template = Template(template)
        except ConfigurationError as error:
            raise self._error(str(error)) from None
        parameters = [
            name for name, found in self._signature.parameters.items() if found.kind not in _MANY
        ]
        for placeholder in self._template.placeholders:
            if placeholder.name not in parameters:
                raise self._error(
                    f"{placeholder} names no parameter; there are:"
                    f" {', '.join(parameters) or 'none'}"
                )

    def name(self, *args: Any, **kwargs: Any) -> str:
        """Return the lock's name for a call with these arguments. Defaults count as given.

        Different texts never give the same name. A value that contains the separator behind its
        placeholder is refused for that reason.

        Raises:
            ConfigurationError: A value has no stable text, or contains the separator behind it.
            TypeError: The function does not accept these arguments.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._called}() {error}") from None
        bound.apply_defaults()
        try:
            return self._template.fill(
                [self._text(one, bound.arguments) for one in self._template.placeholders]
            )
        except SeparatorInText as error:
            raise self._error(
                f"the value {error.text!r} of {error.placeholder} contains"
                f" {error.separator!r}, which ends the placeholder: other arguments could"
                " give the same name; use a separator that no value contains"
            ) from None

    def _text(self, placeholder: Placeholder, arguments: Mapping[str, object]) -> str:
        try:
            value = placeholder.value(arguments)
            text = f"{{0{placeholder.format}}}".format(value)
            if isinstance(value, _WITHOUT_TEXT) or (
                not isinstance(value, str) and _ADDRESS.search(text)
            ):
                kind = type(value).__name__
                raise TypeError(
                    f"a {kind} has no text that is the same in every process; name an attribute"
                    " of it"
                )
        except (AttributeError, TypeError, ValueError) as error:
            raise self._error(f"{placeholder} has no value for the name: {error}") from error
        return text

    def _error(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self._where}: {what}")


def check_guard(
    lock: Callable[[str], object], template: object, example: str = "@redlock.guard("
) -> None:
    """Check the arguments of a decorator when it is made, and not at the first call.

    Args:
        lock: Describes the lock of a name.
        template: The name's template.
        example: The beginning of a right use, for errors.

    Raises:
        ConfigurationError: The template is no str, or an option of the lock is invalid.
    """
    if not isinstance(template, str):
        raise ConfigurationError(
            f'a lock needs a name, like {example}"job:{{job_id}}"); got {template!r}'
        )
    lock(template)


def guarded(lock: Callable[[str], Lock], template: str) -> Guard:
    """Return the decorator of `Redlock.guard`.

    Args:
        lock: Describes the lock of a name.
        template: The name's template (`NameTemplate`).

    Raises:
        ConfigurationError: The template or an option is invalid for all arguments.
    """
    check_guard(lock, template)

    def decorate(
        function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        if inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                f"guard({template!r}) cannot hold a lock for the async generator"
                f" {function.__qualname__}(), which its caller may never close; use `async"
                " with redlock.lock(...)` in the code that reads its values"
            )
        if not inspect.iscoroutinefunction(function):
            raise ConfigurationError(
                f"guard({template!r}) is for functions defined by `async def`, not {function!r};"
                " write it directly above the `async def`, below every other decorator"
            )
        names = NameTemplate(template, function)

        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            async with lock(names.name(*args, **kwargs)):
                return await function(*args, **kwargs)

        return call

    return decorate
