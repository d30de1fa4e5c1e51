"""Labels of single calls: the values that `owner` accepts, and the resulting labels."""

from __future__ import annotations

from datetime import date
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from aioredlock_ng import ConfigurationError, Redlock
from aioredlock_ng._core.request_labels import UnusableLabel, label_template

if TYPE_CHECKING:
    from collections.abc import Callable


def label(owner: Any, **values: object) -> str | None:
    template = label_template(owner)
    assert template is not None
    return template.label(values)


@pytest.mark.parametrize(
    ("owner", "made"),
    [
        ("the import", "the import"),
        ("{{7}}", "{7}"),
        ("job {id}", "job a b"),
        ("{id} of {user.name} on {day:%F}", "a b of ann on 2026-11-27"),
        ("{user.nobody!r}", "None"),
        (lambda: "the import", "the import"),
        (lambda id, day: f"{id} {day}", "a b 2026-11-27"),  # noqa: A006
        (lambda user, more="!", *_, **__: user.name + more, "ann!"),
        (lambda user: user.nobody, None),
    ],
)
def test_a_label_is_a_text_with_values_or_the_result_of_a_function(
    owner: Any, made: str | None
) -> None:
    user = SimpleNamespace(name="ann", nobody=None)
    assert label(owner, id="a b", day=date(2026, 11, 27), user=user) == made


def test_a_label_may_contain_the_separator_that_a_name_may_not() -> None:
    assert label("{method} {path}", method="a b", path="c") == "a b c"


def test_without_an_owner_there_is_no_template() -> None:
    assert label_template(None) is None


async def later() -> str:
    return ""


def positional(request: object, /) -> str:
    return ""


@pytest.mark.parametrize(
    ("owner", "told"),
    [
        ("", "owner must be one line of text, got ''; leave it out for the usual label"),
        ("job {id}\n", "owner must be one line of text"),
        ("x" * 201, "owner must have at most 200 bytes"),
        ("{id}" + "x" * 200, "owner must have at most 200 bytes"),
        ("job {id", r"owner 'job \{id': expected '\}'.*; write a literal brace as \{\{ or \}\}"),
        ("{}", r"\{\} is not possible"),
        ("{id[0]}", r"\{id\[0\]\} is not possible"),
        ("{a}{b}", "put a separator"),
        (
            7,
            (
                "owner must be a text like 'job {job_id}', a function that returns the label, "
                "or None .*; got 7$"
            ),
        ),
        (False, "got False; for no labels, make the manager with owner=False"),
        (str, "owner must be a text .*; got <class 'str'>"),
        (Annotated[str, 1], "owner must be a text"),
        (later, "coroutine function; use a plain function"),
        (positional, "request of .* is positional-only; write a lambda around it"),
        (dict.fromkeys, "does not show its parameters|positional-only"),
    ],
)
def test_an_invalid_owner_is_refused_before_any_call(owner: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        label_template(owner)


@pytest.mark.parametrize("text", ["", "two\nlines", "x" * 201])
@pytest.mark.parametrize("owner", ["{id}", lambda id: id])  # noqa: A006
def test_a_text_that_cannot_be_a_label_is_refused(owner: Any, text: str) -> None:
    with pytest.raises(UnusableLabel, match="owner must"):
        label(owner, id=text)


def test_a_value_without_the_attribute_or_the_format_is_named() -> None:
    with pytest.raises(
        ConfigurationError, match=r"owner '\{id.x\}': \{id.x\} has no value for the label: .* 'x'"
    ):
        label("{id.x}", id=7)
    with pytest.raises(ConfigurationError, match=r"\{id:%d\} has no value for the label"):
        label("{id:%d}", id=7)
    with pytest.raises(
        ConfigurationError, match=r"owner must return a str or None, not int; convert it by str\(\)"
    ):
        label(lambda id: id, id=7)  # noqa: A006


def test_an_error_of_the_function_propagates() -> None:
    headers: dict[str, str] = {}
    with pytest.raises(KeyError, match="x-request-id"):
        label(lambda: headers["x-request-id"])


@pytest.fixture
def redlock() -> Redlock:
    """Never opened: decorating needs no connection."""
    return Redlock(["redis://127.0.0.1:1"])


async def report(user_id: object, *more: object, urgent: bool = False) -> None: ...


@pytest.mark.parametrize("owner", ["{usr}", lambda usr: usr, lambda more, usr: usr])
def test_an_owner_that_does_not_fit_the_function_is_refused_at_decoration(
    redlock: Redlock, owner: str | Callable[..., str]
) -> None:
    words = (
        r"guard\('report:\{user_id\}'\) of report\(\): owner: "
        r"\{(usr|more)\} names no parameter; there are: user_id, urgent"
    )
    with pytest.raises(ConfigurationError, match=words):
        redlock.guard("report:{user_id}", owner=owner)(report)


async def test_a_call_whose_text_cannot_be_a_label_is_refused_before_any_request(
    redlock: Redlock,
) -> None:
    called = redlock.guard("report", owner="user {user_id}")(report)
    with pytest.raises(
        ConfigurationError,
        match=r"guard\('report'\) of report\(\): owner must be one line of text, got 'user a\\n'",
    ):
        await called("a\n")
