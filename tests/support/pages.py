"""Runs the Python blocks of a page. Real nodes take the place of the addresses that the page names.

A comment `<!-- before … -->` right above a block holds code that runs before the block. A comment
`<!-- after … -->` right below a block holds code that runs after the block and checks its promises.
Readers of the page see neither comment. This module starts no node.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.support.node_set import NodeSet

__all__ = ["ADDRESS", "Block", "blocks", "run"]

BLOCK = re.compile(
    r"(?:^<!--\s*before\n(?P<before>.*?)-->\n\s*)?"
    r"^```python\n(?P<code>.*?)^```\n"
    r"(?:\s*^<!--\s*after\n(?P<after>.*?)-->)?",
    re.MULTILINE | re.DOTALL,
)
ADDRESS = re.compile(r"redis://[\w.]+(?::\d+)?")


@dataclass(frozen=True)
class Block:
    """One example, with the code of its comments. Line numbers are those of the page."""

    page: Path
    line: int
    source: str

    @property
    def id(self) -> str:
        """The page and the line, for the name of a test."""
        return f"{self.page.stem}-line-{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the Python blocks of a page, each with the code of the comments around it."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        source = ""
        for part in ("before", "code", "after"):
            if match[part] is not None:
                missing = text.count("\n", 0, match.start(part)) - source.count("\n")
                source += "\n" * missing + match[part]
        found.append(Block(page, text.count("\n", 0, match.start("code")) + 1, source))
    return found


async def run(
    block: Block,
    nodes: NodeSet,
    monkeypatch: pytest.MonkeyPatch,
    names: dict[str, Any] | None = None,
) -> None:
    """Run a block with these global names. The block may add names.

    The environment variable AIOREDLOCK_NG_NODES also has the URLs of the nodes. The block must
    leave no lock behind.
    """
    urls: dict[str, str] = {}

    def real(match: re.Match[str]) -> str:
        return urls.setdefault(match[0], nodes.urls[len(urls)])

    source = ADDRESS.sub(real, block.source)
    monkeypatch.setenv("AIOREDLOCK_NG_NODES", ",".join(nodes.urls))
    code = compile(
        source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
    )
    done = eval(code, {"__name__": block.page.stem.lower()} if names is None else names)
    if inspect.isawaitable(done):
        await done
    assert nodes.keys() == [set()] * len(nodes), "the example leaves the key of a lock behind"
