"""Every Python block of the README runs, against real nodes in place of the addresses that it names.

A comment `<!-- before … -->` right above a block holds code that runs before it, `<!-- after … -->` right below what runs
after it, and checks what the block promises: neither is seen by who reads the page.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

README = Path(__file__).parents[2] / "README.md"

BLOCK = re.compile(
    r"(?:^<!--\s*before\n(?P<before>.*?)-->\n\s*)?"
    r"^```python\n(?P<code>.*?)^```\n"
    r"(?:\s*^<!--\s*after\n(?P<after>.*?)-->)?",
    re.MULTILINE | re.DOTALL,
)
ADDRESS = re.compile(r"redis://[\w.]+(?::\d+)?")


@dataclass(frozen=True)
class Block:
    """One example, as it is run; line numbers are those of the README."""

    line: int
    source: str


def blocks() -> list[Block]:
    """Return the README's Python blocks, each with what the comments around it add."""
    text = README.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        source = ""
        for part in ("before", "code", "after"):
            if match[part] is not None:
                missing = text.count("\n", 0, match.start(part)) - source.count("\n")
                source += "\n" * missing + match[part]
        found.append(Block(text.count("\n", 0, match.start("code")) + 1, source))
    return found


@pytest.mark.parametrize("block", [pytest.param(block, id=f"line-{block.line}") for block in blocks()])
async def test_readme_block_runs(block: Block, five_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch) -> None:
    urls: dict[str, str] = {}

    def real(match: re.Match[str]) -> str:
        return urls.setdefault(match[0], five_nodes.urls[len(urls)])

    source = ADDRESS.sub(real, block.source)
    monkeypatch.setenv("AIOREDLOCK_NG_NODES", ",".join(five_nodes.urls))
    code = compile(source, str(README), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    namespace: dict[str, Any] = {"__name__": "readme"}
    done = eval(code, namespace)
    if inspect.isawaitable(done):
        await done
    assert five_nodes.keys() == [set()] * 5, "the example leaves its key behind"
