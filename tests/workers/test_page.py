"""The quotations of docs/workers.md are in the examples, and its other blocks run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples import cron_once
from tests.support.pages import Block, blocks, run

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "workers.md"
TEXT = PAGE.read_text(encoding="utf-8")
QUOTED = {
    TEXT.count("\n", 0, match.start("code")) + 1: (match["file"], match["code"])
    for match in re.finditer(
        r"^<!-- (?P<file>examples/\S+) -->\n```python\n(?P<code>.*?)^```",
        TEXT,
        re.MULTILINE | re.DOTALL,
    )
}


@pytest.mark.parametrize("line", QUOTED)
def test_a_quotation_is_a_part_of_its_example(line: int) -> None:
    file, code = QUOTED[line]
    assert code in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "block",
    [block for block in blocks(PAGE) if block.line not in QUOTED],
    ids=lambda block: block.id,
)
async def test_every_block_of_the_page_that_is_no_quotation_runs(
    block: Block, three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(block, three_nodes, monkeypatch)


def test_files_and_figures_of_the_page_agree_with_the_examples() -> None:
    files = set(re.findall(r"\]\(\.\./(examples/\w+\.py)\)", TEXT))
    assert {file for file in files if not (ROOT / file).exists()} == set()
    assert {file for file, _ in QUOTED.values()} < files
    assert f"`PERIOD` = {cron_once.PERIOD:g} s" in TEXT
    assert re.search(rf"differ by up to\s+{cron_once.PERIOD / 2 - 1:g} s", TEXT)
