"""The tables of docs/options.md list every option, its default and its environment variable."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

import pytest

from aioredlock_ng import Lease, Options, Redlock
from aioredlock_ng._clock import boottime
from aioredlock_ng.environment import PREFIX, settings_from

PAGE = Path(__file__).parents[2] / "docs" / "options.md"

IN_WORDS = {
    "": {"nodes": inspect.Parameter.empty},
    "boot time, system": {"clock": boottime, "wall_clock": None, "rng": None},
    "the manager's": {"ttl": None},
}
"""Defaults that the table gives in words: the words, and the value of each option."""

WORDS = {"true": True, "false": False, "none": None}


def rows(first: str) -> list[list[str]]:
    """Return the cells of the table whose first column has this name."""
    page = PAGE.read_text(encoding="utf-8")
    table = dropwhile(lambda line: not line.startswith(f"| {first} |"), page.splitlines())
    lines = list(takewhile(lambda line: line.startswith("|"), table))[2:]
    return [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines]


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def default(name: str, said: str) -> object:
    """The value that is meant; behind a colon the table explains it."""
    if said in IN_WORDS:
        return IN_WORDS[said][name]
    return ast.literal_eval(said.strip("`").partition(": ")[0])


def defaults(first: str) -> dict[str, str]:
    return {
        name: repr(default(name, cells[1])) for cells in rows(first) for name in names(cells[0])
    }


def signature(function: Any, *but: str) -> dict[str, str]:
    found = inspect.signature(function).parameters
    return {name: repr(parameter.default) for name, parameter in found.items() if name not in but}


VARIABLES = {names(cells[0])[0]: cells[3] for cells in rows("option") if PREFIX in cells[3]}


class Environ(Mapping[str, str]):
    """An environment that knows what it was asked for."""

    def __init__(self, **variables: str) -> None:
        self.variables = variables
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return self.variables[name]

    def __iter__(self) -> Iterator[str]:
        """Names are listed too, so that the library can find misspelt variables."""
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)


def variable(cell: str) -> str:
    (found,) = re.findall(rf"`({PREFIX}\w+)`", cell)
    return str(found)


def examples(option: str, cell: str) -> dict[str, object]:
    """Texts that the variable may have, and what they mean: the words that the table lists, else
    one of the option's kind.
    """
    if listed := re.search(r"\((.+)\)", cell):
        return {word: WORDS.get(word, word) for word in re.split(r", | or ", listed[1])}
    return {"lock:{name}": "lock:{name}"} if option == "key_format" else {"0.25": 0.25}


def test_the_table_has_every_option_of_the_manager_with_its_default() -> None:
    assert defaults("option") == signature(Redlock)


def test_the_table_has_every_argument_of_a_lock_with_its_default() -> None:
    assert defaults("argument") == signature(Redlock.lock, "self", "name", "more")


def test_the_least_validity_by_default_is_the_share_that_the_table_says() -> None:
    (said,) = (cells[1] for cells in rows("option") if names(cells[0]) == ["min_validity"])
    (percent,) = re.findall(r"^None: (\d+) % of ttl$", said)
    assert Options().least_validity(10.0) == pytest.approx(10.0 * int(percent) / 100)


@pytest.mark.parametrize("option", sorted(VARIABLES.keys() - {"nodes"}))
def test_the_value_of_an_environment_variable_becomes_its_option(option: str) -> None:
    for text, meant in examples(option, VARIABLES[option]).items():
        environ = {f"{PREFIX}NODES": "redis://10.0.0.1", variable(VARIABLES[option]): text}
        urls, found = settings_from(environ, {})
        assert (urls, repr(found)) == (["redis://10.0.0.1"], repr({option: meant}))


def test_the_urls_of_nodes_are_read_without_the_spaces_around_their_commas() -> None:
    urls = ["redis://:a%2Cb@10.0.0.1", "rediss://10.0.0.2"]
    assert settings_from({variable(VARIABLES["nodes"]): " , ".join(urls)}, {}) == (urls, {})


@pytest.mark.parametrize("first", ["option", "argument"])
def test_every_option_of_a_table_is_explained_below_it(first: str) -> None:
    listed = [name for cells in rows(first) for name in names(cells[0])]
    below = PAGE.read_text(encoding="utf-8").partition(f"\n| {first} |")[2].partition("\n## ")[0]
    explained = [
        name for item in re.findall(r"^\* (`.*?`): ", below, re.MULTILINE) for name in names(item)
    ]
    assert explained == listed


def test_no_variable_is_read_that_the_table_does_not_have() -> None:
    environ = Environ(AIOREDLOCK_NG_NODES="redis://10.0.0.1", AIOREDLOCK_NG_TTLS="5", PATH="/bin")
    settings_from(environ, {})
    assert environ.asked == {variable(cell) for cell in VARIABLES.values()}


def test_the_tables_have_every_public_member_of_a_lease() -> None:
    listed = [
        name
        for first in ("without I/O", "to await")
        for cells in rows(first)
        for name in re.findall(r"`(\w+)", cells[0])
    ]
    public = [
        name
        for name, member in inspect.getmembers(Lease)
        if not name.startswith("_") and "Internal:" not in (member.__doc__ or "")
    ]
    assert sorted(listed) == public
