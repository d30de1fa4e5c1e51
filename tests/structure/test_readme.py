"""Every Python block of the README runs, against real nodes in place of the addresses that it names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.pages import Block, blocks, run

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("block", [pytest.param(block, id=f"line-{block.line}") for block in blocks(README)])
async def test_readme_block_runs(block: Block, five_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(block, five_nodes, monkeypatch)
