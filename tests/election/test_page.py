"""The Python of docs/election.md runs, and its table names existing methods."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import Election
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
