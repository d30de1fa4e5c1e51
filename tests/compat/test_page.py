"""The Python of docs/migrating.md runs: ours here, what it comes from by the real libraries."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from benchmarks.environments import ROOT
from tests.compat.environments import python_of, variables
from tests.support import pages

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet
    from tests.support.pages import Block

PAGE = ROOT / "docs" / "migrating.md"

OLD = re.compile(
    r"^## (?P<library>[\w-]+)[^\n]*\n\n(?:[^`#\n][^\n]*\n\n)?```py\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)

RUN = """
import ast, asyncio, inspect, sys
flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
code = compile(sys.stdin.read(), "migrating.md", "exec", flags=flags)
done = eval(code, {"__name__": "page"})
if inspect.isawaitable(done):
    asyncio.run(done)
"""


@pytest.mark.filterwarnings("ignore:aioredlock_ng.compat:DeprecationWarning")
@pytest.mark.parametrize(
    "block", [pytest.param(block, id=block.id) for block in pages.blocks(PAGE)]
)
async def test_the_new_code_of_each_library_works(
    block: Block, three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pages.run(block, three_nodes, monkeypatch)


# The first of them may make an environment, from PyPI.
@pytest.mark.once
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("library", "code"),
    [pytest.param(*match, id=match[0]) for match in OLD.findall(PAGE.read_text())],
)
async def test_the_old_code_of_each_library_works(
    library: str, code: str, three_nodes: NodeSet
) -> None:
    for index, url in enumerate(three_nodes.urls):
        code = code.replace(f"redis://10.0.0.{index + 1}", url)
    python = await asyncio.to_thread(python_of, library)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        python, "-c", RUN, stdin=pipe, stdout=pipe, stderr=pipe, env=variables()
    )
    told, complaints = await asyncio.wait_for(process.communicate(code.encode()), 60)
    assert process.returncode == 0, complaints.decode()
    assert b"busy" not in told
    # python-redis-lock leaves the list that wakes its waiters for a second.
    left = set().union(*three_nodes.keys())
    assert not {name for name in left if not name.startswith("lock-signal:")}


def test_every_library_has_its_old_and_its_new_code() -> None:
    libraries = [
        "aioredlock",
        "redis-py",
        "pottery",
        "redlock-ng",
        "redlock-py",
        "python-redis-lock",
    ]
    assert [match["library"] for match in OLD.finditer(PAGE.read_text())] == libraries
    # Two blocks for aioredlock, and one for a loop around SET NX.
    assert len(pages.blocks(PAGE)) == len(libraries) + 2
