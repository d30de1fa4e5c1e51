"""The Python of docs/election.md runs, and its table names existing methods."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Election, ElectionOptions
from aioredlock_ng._election.candidate_arguments import candidate
from tests.support.pages import Block, blocks, run

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

PAGE = Path(__file__).parents[2] / "docs" / "election.md"
TEXT = PAGE.read_text(encoding="utf-8")

HINTS = ("acquire", "try_acquire")
"""Methods of a lock, which an election answers with an error that shows the right line."""


@pytest.mark.parametrize("block", [pytest.param(block, id=block.id) for block in blocks(PAGE)])
async def test_a_block_of_the_page_runs(
    block: Block, three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(block, three_nodes, monkeypatch)


def test_the_page_names_every_method_of_an_election() -> None:
    internal = {
        name for name, member in vars(Election).items() if "Internal:" in (member.__doc__ or "")
    }
    public = {name for name in vars(Election) if not name.startswith("_")} - {
        "name",
        "ttl",
        *HINTS,
        *internal,
    }
    assert [name for name in sorted(public) if not re.search(rf"\b{name}\b", TEXT)] == []


def test_the_table_has_every_option_of_an_election_with_its_default() -> None:
    table = TEXT.partition("| option | default | unit |")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)` \| (\w+)", table, re.MULTILINE)
    parameters = inspect.signature(candidate).parameters
    assert {name for name, _ in listed} == ElectionOptions.__optional_keys__
    for name, default in listed:
        assert ast.literal_eval(default) == parameters[name].default
