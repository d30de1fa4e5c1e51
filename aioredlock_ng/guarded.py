"""Define the decorator behind `Redlock.guard`, which names a lock after the arguments of a call."""

from __future__ import annotations

import functools
import inspect
import re
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from aioredlock_ng._core.request_labels import labels_of_calls
from aioredlock_ng._core.templates import SeparatorInText, Template
from aioredlock_ng.errors import ConfigurationError
from aioredlock_ng.options import check_shared
from aioredlock_ng.rwlock import CommonOptions, RWLockOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from aioredlock_ng._core.request_labels import LabelTemplate
    from aioredlock_ng._core.templates import Placeholder
    from aioredlock_ng.lock import Lock

__all__ = [
    "Guard",
    "GuardOptions",
    "LockOptions",
    "Manager",
    "NameTemplate",
    "called",
    "check_guard",
    "described",
    "guarded",
    "names_of_calls",
]

P = ParamSpec("P")
R = TypeVar("R")
L_co = TypeVar("L_co", covariant=True)

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Pattern of the memory address in the default text of a Python object. The address differs between
processes."""

_WITHOUT_TEXT = (bytes, bytearray, memoryview, set, frozenset)
"""Types whose values have no text that can be a part of a name.

The order of a set differs between processes. The text of bytes, `b'…'`, would name another lock
than the bytes themselves.
"""

_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class LockOptions(RWLockOptions, total=False):
    """Arguments of `Redlock.lock` besides the names: those of `RWLockOptions`, and two more."""

    fair: bool
    min_hold: float | None


class GuardOptions(CommonOptions, total=False):
    """Options of `Redlock.guard` for the locks that the calls of the function acquire.

    `owner` is a template like that of the name, or a function. The function returns the label, or
    None for the manager's label. Each of its parameters without a default receives the argument of
    the same name from the call.
    """

    fair: bool
    min_hold: float | None
    owner: str | Callable[..., str | None] | None


class Guard(Protocol):
    """A decorator for coroutine functions. The decorated function keeps its signature."""

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        """Return a coroutine function that holds the lock during each call."""


class _Sides(Protocol[L_co]):
    """A read-write lock, whose readers' side has the type `L_co`."""

    def read(self) -> L_co: ...


class Manager(Protocol[L_co]):
    """A manager for asyncio or for threads, whose locks have the type `L_co`."""

    @property
    def lock(self) -> Callable[..., L_co]:
        """The method that makes a lock."""

    @property
    def semaphore(self) -> Callable[..., L_co]:
        """The method that makes a semaphore."""

    @property
    def rwlock(self) -> Callable[..., _Sides[L_co]]:
        """The method that makes a read-write lock."""


def described(
    redlock: Manager[L_co],
    names: Collection[str],
    options: Mapping[str, Any],
    limit: int | None = None,
    *,
    shared: bool = False,
    owner: str | None = None,
) -> L_co:
    """Return a lock, a semaphore if `limit` is given, or a readers' side if `shared` is True.

    A semaphore and a read-write lock have only one name. `options` are options of `Redlock.lock`.
    `owner` is the label of the leases; None for the manager's label.

    Raises:
        ConfigurationError: An argument is invalid.
    """
    if owner is not None:
        options = {**options, "owner": owner}
    if not isinstance(shared, bool):
        raise ConfigurationError(f"shared must be True or False, not {type(shared).__name__}")
    if shared:
        check_shared(options, len(names), limit)
        return redlock.rwlock(*names, **options).read()
    if limit is None:
        return redlock.lock(*names, **options)
    return redlock.semaphore(*names, limit, **options)


class NameTemplate:
    """A lock name with placeholders for the arguments of one function.

    Args:
        template: A text as for `str.format`. Its placeholders are parameters of the function, or
            attributes of parameters. Positions, such as `{0}`, and indexing, such as `{ids[0]}`,
            are not allowed.
        function: The function with these parameters.
        decorator: Name of the decorator in errors.

    Raises:
        ConfigurationError: A placeholder names no parameter, or no text separates two placeholders.
    """

    def __init__(
        self, template: str, function: Callable[..., object], decorator: str = "guard"
    ) -> None:
        self._signature = inspect.signature(function)
        self._called = called(function)
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

    def name(self, /, *args: Any, **kwargs: Any) -> str:
        """Return the lock's name for a call with these arguments and the function's defaults.

        Values with different texts never give the same name. For this reason, a value is refused if
        it contains the separator that follows its placeholder.

        Raises:
            ConfigurationError: A value has no text that is the same in every process, or contains
                the separator that follows its placeholder.
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
                f" {error.separator!r}, the separator that follows: other arguments could give the"
                " same name; use a separator that no value contains"
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


def called(function: Callable[..., object]) -> str:
    """Return the name of a function for errors. A `functools.partial` has no name of its own."""
    name: str = getattr(function, "__qualname__", repr(function))
    return name


def check_guard(
    lock: Callable[[str], object], template: object, example: str = "@redlock.guard("
) -> None:
    """Check the arguments of a decorator when the decorator is made, before any call.

    Error messages show `example`, which is the beginning of correct code.

    Raises:
        ConfigurationError: The template is not a str, or an option of the lock is invalid.
    """
    if not isinstance(template, str):
        raise ConfigurationError(
            f'a lock needs a name, like {example}"job:{{job_id}}"); got {template!r}'
        )
    lock(template)


def names_of_calls(template: str, function: Callable[..., object], decorator: str) -> NameTemplate:
    """Return the template that names the lock of each call of a coroutine function.

    Error messages contain `decorator`, which is the name of the decorator, such as "guard".

    Raises:
        ConfigurationError: The function is not a coroutine function, or the template does not fit
            the function.
    """
    if inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{decorator}({template!r}) cannot hold a lock for the async generator"
            f" {called(function)}(), which its caller may never close; use `async"
            " with redlock.lock(...)` in the code that reads its values"
        )
    if not inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"{decorator}({template!r}) is for functions defined by `async def`, not {function!r};"
            " write it directly above the `async def`, below every other decorator"
        )
    return NameTemplate(template, function, decorator)


def guarded(
    lock: Callable[[str, str | None], Lock], template: str, owner: LabelTemplate | None
) -> Guard:
    """Return the decorator of `Redlock.guard`.

    Args:
        lock: Returns the lock for a name and a label.
        template: The template of the name; see `NameTemplate`.
        owner: The template of the label.

    Raises:
        ConfigurationError: The template is not a str, or an option is invalid.
    """
    check_guard(lambda name: lock(name, None), template)

    def decorate(
        function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]:
        names = names_of_calls(template, function, "guard")
        labels = labels_of_calls(owner, function, f"guard({template!r})")

        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            async with lock(names.name(*args, **kwargs), labels(args, kwargs)):
                return await function(*args, **kwargs)

        return call

    return decorate
