"""Check the parameters of a FastAPI endpoint, and read their values from a request."""

from __future__ import annotations

import inspect
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Union, get_args, get_origin

from fastapi import params
from fastapi.dependencies.utils import get_typed_signature
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError

from aioredlock_ng import ConfigurationError
from aioredlock_ng._core.templates import Placeholder

from ._template import is_textual

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.requests import HTTPConnection

__all__ = ["Parameters"]

_NONE = inspect.Parameter.empty


class Parameters:
    """The parameters of one endpoint, as FastAPI understands them.

    Args:
        endpoint: The function behind a route.
        maker: Name of the function that made the dependency, for errors: `lock_for` or
            `semaphore_for`.
    """

    def __init__(self, endpoint: Callable[..., Any], maker: str) -> None:
        self._maker = maker
        self._called = f"{getattr(endpoint, '__name__', repr(endpoint))}()"
        self._found = dict(get_typed_signature(endpoint).parameters)
        self._adapters: dict[str, TypeAdapter[Any]] = {}

    def check(self, placeholder: Placeholder, path: frozenset[str]) -> None:
        """Check a placeholder whose value is not declared in `lock_for`.

        The value must come from the path or the query.

        Raises:
            ConfigurationError: The placeholder has attributes, or is not a parameter from the path
                or the query. The error is also raised if the lock's value may differ from the
                endpoint's value, or if two equal values of the type could give different names.
        """
        name = placeholder.name
        if name not in self._found:
            if name in path and not placeholder.attributes:
                return
            raise self._missing(placeholder, path)
        parameter = self._found[name]
        marker = _marker(parameter)
        plain = isinstance(marker, params.Path | params.Query | None) and _textual(
            parameter.annotation
        )
        if not plain or placeholder.attributes:
            if (
                placeholder.attributes
                or isinstance(marker, params.Depends)
                or _declarable(parameter.annotation)
            ):
                remedy = f"declare the value, like {self._maker}(..., {name}={_remedy(parameter)})"
            else:
                remedy = (
                    f"use a dependency that returns such a value: {self._maker}(...,"
                    f" {name}=Depends(...))"
                )
            raise ConfigurationError(
                f"{placeholder} of {self._called} is not a plain str, int, UUID, date or Enum"
                f" from the path or the query; {remedy}"
            )
        if marker is not None and (
            marker.default_factory is not None
            or marker.validation_alias not in (None, marker.alias)
        ):
            raise ConfigurationError(
                f"{placeholder} of {self._called} has a validation_alias or a"
                " default_factory, so its value could differ from the one in the lock's"
                " name; use alias= and a plain default"
            )

    def agree(
        self,
        placeholder: Placeholder,
        declared: inspect.Parameter,
        path: frozenset[str],
        *,
        textual: bool,
    ) -> None:
        """Check that `lock_for` and the endpoint declare a placeholder's value in the same way.

        The result of a dependency is not checked. The value must have the attributes that the
        placeholder names. If `textual` is True, two equal values of the declared type must
        always give the same name.

        Raises:
            ConfigurationError: The declarations differ, a model lacks an attribute, or two equal
                values of the type could give different names. The error is also raised if the
                lock uses a value from the query or the body that the endpoint does not use.
        """
        if isinstance(declared.default, params.Depends):
            return
        name, annotation = placeholder.name, declared.annotation
        if name in self._found:
            parameter = self._found[name]
            same_place = name in path or _source(parameter) == _source(declared)
            if _plain(parameter.annotation) != _plain(annotation) or not same_place:
                raise ConfigurationError(
                    f"{name} is {annotation!r} here, but not in {self._called}; declare the same:"
                    f" {name}={_remedy(parameter)}"
                )
            if self._default(name) is not _NONE:
                raise ConfigurationError(
                    f"{name} has a default in {self._called}, but not in {self._maker}(); use a"
                    f" dependency that returns it in both places: {name}=Depends(...)"
                )
        elif name not in path and not isinstance(_marker(declared), params.Header | params.Cookie):
            raise self._missing(placeholder, path)
        for attribute in placeholder.attributes:
            annotation = _plain(annotation)
            if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
                return
            if attribute not in annotation.model_fields:
                if hasattr(annotation, attribute):
                    return
                there = ", ".join(annotation.model_fields)
                raise ConfigurationError(
                    f"{placeholder}: {annotation.__name__} has no {attribute}; it has: {there}"
                )
            annotation = annotation.model_fields[attribute].annotation
        if textual and not _textual(annotation):
            raise ConfigurationError(
                f"{placeholder} must be a str, int, UUID, date or Enum, not"
                f" {_written(annotation)}; name an attribute of it, or use a dependency that"
                f" returns such a value: {self._maker}(..., {name}=Depends(...))"
            )

    def read(self, names: Iterable[str], connection: HTTPConnection) -> dict[str, Any]:
        """Return the values that the endpoint receives from the path and the query.

        Raises:
            RequestValidationError: The request lacks a value, or a value has the wrong type (422).
            ConfigurationError: A name does not pass `check`.
        """
        values: dict[str, Any] = {}
        errors: list[Any] = []
        for name in names:
            adapter = self._adapter(name, frozenset(connection.path_params))
            marker = _marker(self._found[name]) if name in self._found else None
            from_path = (
                isinstance(marker, params.Path)
                if marker is not None
                else name in connection.path_params
            )
            where, given = (
                ("path", connection.path_params)
                if from_path
                else ("query", connection.query_params)
            )
            alias = getattr(marker, "alias", None) or name
            raw = given.get(alias, self._default(name))
            if raw is _NONE:
                errors.append(
                    {
                        "type": "missing",
                        "loc": (where, alias),
                        "msg": "Field required",
                        "input": None,
                    }
                )
                continue
            try:
                values[name] = adapter.validate_python(raw)
            except ValidationError as error:
                told = error.errors(include_url=False)
                errors += [{**one, "loc": (where, alias, *one["loc"])} for one in told]
        if errors:
            raise RequestValidationError(errors)
        return values

    def _adapter(self, name: str, path: frozenset[str]) -> TypeAdapter[Any]:
        if name not in self._adapters:
            self.check(Placeholder(name), path)
            annotation = self._found[name].annotation if name in self._found else _NONE
            self._adapters[name] = TypeAdapter(Any if annotation is _NONE else annotation)
        return self._adapters[name]

    def _default(self, name: str) -> Any:
        default = self._found[name].default if name in self._found else _NONE
        if isinstance(default, params.Param):
            return _NONE if default.is_required() else default.get_default()
        return default

    def _missing(self, placeholder: Placeholder, path: frozenset[str]) -> ConfigurationError:
        there = ", ".join(sorted(self._found.keys() | path)) or "none"
        return ConfigurationError(
            f"{placeholder} is not a parameter of {self._called}; there are: {there}"
        )


def _marker(parameter: inspect.Parameter) -> Any:
    """Return the source that a parameter declares, such as `Query()`, or None."""
    given = (*getattr(parameter.annotation, "__metadata__", ()), parameter.default)
    return next(
        (
            one
            for one in reversed(given)
            if isinstance(one, params.Param | params.Body | params.Depends)
        ),
        None,
    )


def _source(parameter: inspect.Parameter) -> tuple[type[Any], str | None]:
    """Return the type of a parameter's source, such as `Query`, and the source's alias."""
    marker = _marker(parameter)
    return type(marker), getattr(marker, "alias", None)


def _plain(annotation: Any) -> Any:
    """Return the type without the additions of `Annotated` and `NewType`."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        else:
            return annotation


def _textual(annotation: Any) -> bool:
    """Return True if two equal values of this type always give the same name.

    A parameter without annotation receives the text from the request, so the result is True.
    """
    plain = _plain(annotation)
    if get_origin(plain) in (Union, UnionType):
        return all(_textual(one) for one in get_args(plain))
    if get_origin(plain) is Literal:
        return all(is_textual(type(one)) for one in get_args(plain))
    return plain is _NONE or (isinstance(plain, type) and is_textual(plain))


def _declarable(annotation: Any) -> bool:
    """Return True for a type that passes `_textual`, and for a model: its attributes may pass."""
    plain = _plain(annotation)
    return _textual(plain) or (isinstance(plain, type) and issubclass(plain, BaseModel))


def _remedy(parameter: inspect.Parameter) -> str:
    """Return, as text for an error, the declaration that gives the lock the endpoint's value."""
    marker, written = _marker(parameter), _written(parameter.annotation)
    if isinstance(marker, params.Depends):
        return f"Depends({getattr(marker.dependency, '__name__', '...')})"
    return written if marker is None else f"Annotated[{written}, {type(marker).__name__}()]"


def _written(annotation: Any) -> str:
    """Return a type in the form in which users write it."""
    plain = _plain(annotation)
    if plain is _NONE:
        return "..."
    return plain.__name__ if isinstance(plain, type) else inspect.formatannotation(plain)
