"""The tutorial runs from its first line to its last, as one session, on the servers that it starts
itself.
"""

from __future__ import annotations

import ast
import codeop
import inspect
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.node_set import NodeSet
from tests.support.pages import blocks, run

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"

pytestmark = pytest.mark.once


@contextmanager
def session() -> Iterator[dict[str, Any]]:
    """The names of a session at a prompt; its servers are gone when it ends, however that is."""
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        yield names
    finally:
        for server in (names.get("nodes"), names.get("database")):
            if server is not None:
                server.close()


async def test_every_step_of_the_tutorial_has_the_result_that_it_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with session() as names:
        for block in blocks(PAGE):
            await run(block, NodeSet([]), monkeypatch, names)
        assert names["redlock"].nodes[0].state == "down"


async def test_the_tutorial_can_be_typed_at_a_prompt(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would keep each value under a name that every module sees.
    monkeypatch.setattr(sys, "displayhook", print)
    text = PAGE.read_text(encoding="utf-8")
    # `python -m asyncio` compiles each line in this way.
    prompt = codeop.CommandCompiler()
    prompt.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    with session() as names:
        for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            typed: list[str] = []
            for line in [*block.splitlines(), ""]:
                typed.append(line)
                if (command := prompt("\n".join(typed), "<stdin>", "single")) is not None:
                    typed.clear()
                    done = eval(command, names)
                    if inspect.isawaitable(done):
                        await done
            assert typed == [], "unfinished at the end of its block"
    printed = capsys.readouterr().out
    shown = re.findall(r"^ *# Prints ([\[({b].*?[\])}'])\.", text, re.MULTILINE)
    assert len(shown) == 5
    for value in [*shown, "the lock 'report' was lost after ", "rolled back"]:
        assert value in printed, value
