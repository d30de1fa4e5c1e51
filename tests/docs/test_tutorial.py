"""The tutorial runs from its first line to its last, as one session, on the servers that it starts itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_set import NodeSet
from tests.support.pages import blocks, run

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"

pytestmark = pytest.mark.once


async def test_every_step_of_the_tutorial_does_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for block in blocks(PAGE):
            await run(block, NodeSet([]), monkeypatch, names)
    finally:
        for server in (names.get("nodes"), names.get("database")):
            if server is not None:
                server.close()
    assert names["redlock"].nodes[0].state == "down"


def test_the_tutorial_can_be_typed_at_the_prompt_that_it_names() -> None:
    code = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    session = "\n\n".join(code) + "\n\nexit()\n"
    told = subprocess.run(
        [sys.executable, "-m", "asyncio"], input=session, capture_output=True, text=True, timeout=55, check=True
    )
    assert "Error" not in told.stderr, told.stderr
    assert "Traceback" not in told.stderr, told.stderr
    said = [line.removeprefix(">>> ").removeprefix("... ") for line in told.stdout.splitlines()]
    printed = "\n".join(line for line in said if line)
    shown = re.findall(r"print\(.*\)\s+# ([\[({b].*[\])}'])", PAGE.read_text(encoding="utf-8"))
    assert len(shown) == 5
    for value in shown:
        assert value in printed, value
    assert "the lock 'report' was lost after 0." in printed
    assert "rolled back" in printed
