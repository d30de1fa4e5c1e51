"""Tables that fit, and times in one unit."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from aioredlock_ng import LockInfo, NodeAnswer, Owner
from aioredlock_ng.cli.listing import _table, _words
from aioredlock_ng.cli.shown import life, seconds
from aioredlock_ng.cli.tables import Column, fitted, output_width

pytestmark = pytest.mark.once

COLUMNS = (
    Column("name", share=0.5),
    Column("minor", 2),
    Column("important"),
    Column("major", 1, right=True),
)


@given(
    st.lists(st.lists(st.text("ab 1é語", max_size=30), min_size=4, max_size=4), max_size=3),
    st.integers(40, 120),
)
def test_no_table_is_wider_than_its_line_and_no_row_takes_two(
    rows: list[list[str]], width: int
) -> None:
    rows = [[name, minor, important[:8], major] for name, minor, important, major in rows]
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(fitted(COLUMNS, rows, width))
    lines = capture.get().splitlines()
    # An empty line, the head and its rule before the rows, and an empty line behind them.
    assert len(lines) == len(rows) + 4
    assert "name" in lines[1]
    assert "important" in lines[1]


@pytest.mark.parametrize(
    ("width", "shown"), [(40, "tenant:4711:gpu#12"), (24, "tenant:4…#12"), (6, "…#12")]
)
def test_a_name_that_is_too_long_keeps_the_number_of_its_slot(width: int, shown: str) -> None:
    columns = (Column("lock", share=0.5, numbered=True),)
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(fitted(columns, [["tenant:4711:gpu#12"]], width))
    assert capture.get().splitlines()[3].strip() == shown


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (100, ["lock", "nodes", "remaining", "token", "owner", "waiting"]),
        (72, ["lock", "nodes", "remaining", "owner"]),
        (50, ["lock", "nodes", "remaining", "token"]),
    ],
)
def test_ls_leaves_out_columns_that_do_not_fit(
    width: int, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioredlock_ng.cli.listing.output_width", lambda: width)
    owner = Owner("checkout-7d9f8b6c5d-x2x9q:1:Task-12", None, 0.0)
    answers = (NodeAnswer("10.0.0.1:6379", "5da5b42a4711", 8.7, ""),)
    lock = LockInfo("order:42", True, "5da5b42a4711", 3, 3, 8.7, answers, owner, 12)
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(_table([lock]))
    lines = capture.get().splitlines()
    assert re.split(r" {2,}", lines[1].strip()) == shown
    values = {
        "lock": "order:42",
        "nodes": "3 of 3",
        "remaining": "8.7 s left",
        "token": "5da5b4…",
        "owner": owner.label,
        "waiting": "12",
    }
    assert re.split(r" {2,}", lines[3].strip()) == [values[name] for name in shown]


@pytest.mark.parametrize(
    ("left", "shown"), [(0.0, "0.0 s left"), (2.5, "2.5 s left"), (None, "no expiry")]
)
def test_ls_says_that_a_key_which_is_not_a_lock_does_not_expire_only_if_this_is_so(
    left: float | None, shown: str
) -> None:
    answers = (NodeAnswer("10.0.0.1:6379", None, left, "not a lock: hash", foreign="hash"),)
    lock = LockInfo("order:42", True, None, 1, 1, left or 0.0, answers, None, None)
    assert _words(lock, "/")[:4] == ("order:42", "1/1", shown, "not a lock: hash")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "-"),
        (0.0, "0.0 s"),
        (0.00042, "0.00042 s"),
        (0.0469, "0.047 s"),
        (0.2345, "0.234 s"),
        (8.74, "8.7 s"),
        (99.5, "99.5 s"),
        (3600.0, "3,600 s"),
    ],
)
def test_every_time_is_in_seconds(value: float | None, words: str) -> None:
    assert seconds(value) == words


def test_the_remaining_time_of_a_key_is_in_seconds_too() -> None:
    assert (life(8.74), life(0.0469)) == ("8.7 s left", "0.047 s left")
    assert life(None) == life(float("inf")) == "no expiry"


@given(st.floats(0.0001, 100_000))
def test_no_time_is_shown_more_than_a_twentieth_off(value: float) -> None:
    shown = float(re.sub("[ s,]", "", seconds(value)))
    assert shown == pytest.approx(value, rel=0.05)


@pytest.mark.parametrize("columns", ["", "0", "-1", "wide", "²"])
def test_a_width_that_is_no_number_counts_as_none(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    unlimited = output_width()
    monkeypatch.delenv("COLUMNS")
    assert output_width() == unlimited
    monkeypatch.setenv("COLUMNS", "70")
    assert output_width() == 70
