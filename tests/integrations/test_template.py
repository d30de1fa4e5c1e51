"""Names of locks: one name per value, and never one name for two."""

from __future__ import annotations

import enum
from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng import ConfigurationError
from aioredlock_ng.integrations._template import Template, UnusableValue


class Color(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("template", "values", "name"),
    [
        ("cron", {}, "cron"),
        ("order:{id}", {"id": 42}, "order:42"),
        ("order:{id}", {"id": "a:b"}, "order:a:b"),
        ("{a}:{b}", {"a": "x", "b": "y:z"}, "x:y:z"),
        ("{a}/{b.c.d}", {"a": Color.RED, "b": SimpleNamespace(c=SimpleNamespace(d=7))}, "red/7"),
        ("{a}", {"a": UUID(int=7)}, "00000000-0000-0000-0000-000000000007"),
        ("{{{a}}}", {"a": date(2026, 11, 21)}, "{2026-11-21}"),
        ("{a}{{{b}", {"a": "x", "b": "y"}, "x{y"),
    ],
)
def test_a_value_is_written_as_it_is(template: str, values: dict[str, object], name: str) -> None:
    assert Template(template).fill(values) == name


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("", "must be a str"),
        (b"order", "must be a str"),
        ("order:{id", "expected '}'"),
        ("order:}", "write a literal brace as"),
        ("{}", r"\{\} is not possible"),
        ("{0}", r"\{0\} is not possible"),
        ("{a[0]}", "not possible"),
        ("{a!r}", "not possible"),
        ("{a:04d}", "not possible"),
        ("{a.__class__}", "not possible"),
        ("{_a}", "not possible"),
        ("{a}{b}", "put a separator"),
    ],
)
def test_an_invalid_template_is_refused_when_it_is_made(template: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Template(template)


@pytest.mark.parametrize(
    "value", [1.5, Decimal("1.0"), None, b"x", [1], datetime(2026, 11, 21, tzinfo=UTC), object()]
)
def test_a_value_without_one_text_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match="different names"):
        Template("order:{id}").fill({"id": value})


def test_the_error_names_a_missing_attribute() -> None:
    with pytest.raises(ConfigurationError, match=r"\{id.nothing\} does not exist"):
        Template("order:{id.nothing}").fill({"id": "x"})


def test_a_value_with_the_separator_in_it_is_refused() -> None:
    with pytest.raises(UnusableValue, match=r"\{a\} must not contain ':'"):
        Template("{a}:{b}").fill({"a": "x:y", "b": "z"})


@given(
    st.sampled_from([":", "::", "a", "aba", "-b"]),
    st.tuples(st.text("ab:-"), st.text("ab:-")),
    st.tuples(st.text("ab:-"), st.text("ab:-")),
)
def test_different_values_never_give_one_name(
    separator: str, one: tuple[str, str], other: tuple[str, str]
) -> None:
    template = Template("cart:{a}" + separator + "{b}")
    names = []
    for a, b in (one, other):
        try:
            names.append(template.fill({"a": a, "b": b}))
        except UnusableValue:
            return
    assert (names[0] == names[1]) == (one == other)
