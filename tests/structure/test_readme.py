"""The README is short, and each of its examples runs against real nodes in place of the addresses
that it names.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from aiohttp.test_utils import TestClient, TestServer

from aioredlock_ng import Redlock
from aioredlock_ng.integrations.aiohttp import REDLOCK
from tests.support.eventually import eventually
from tests.support.pages import ADDRESS, Block, blocks, run

if TYPE_CHECKING:
    import pytest

    from tests.support.node_set import NodeSet

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")


def example(words: str) -> Block:
    """Return the one Python block of the README with these words."""
    (found,) = (block for block in blocks(README) if words in block.source)
    return found


async def names_of(block: Block, nodes: NodeSet, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a block and return the names that it defines. The nodes count as known from before."""
    nodes.found()
    names: dict[str, Any] = {"__name__": "readme"}
    await run(block, nodes, monkeypatch, names)
    return names


async def test_the_first_example_of_the_readme_is_a_program_that_takes_the_lock(
    five_nodes: NodeSet,
) -> None:
    five_nodes.found()
    urls = iter(five_nodes.urls)
    source = ADDRESS.sub(lambda _: next(urls), example("asyncio.run(").source)
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", source, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await program.communicate()
    assert re.fullmatch(r"alone with order 42, on [23] nodes\n", printed.decode())
    await eventually(lambda: five_nodes.keys() == [set()] * len(five_nodes))


async def test_the_fastapi_example_of_the_readme_answers_423_while_the_lock_is_held(
    five_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = (await names_of(example("FastAPI("), five_nodes, monkeypatch))["app"]
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://seats")
    async with app.router.lifespan_context(app), client:
        answer = await client.post("/seats/12")
        assert (answer.status_code, answer.json()["seat"]) == (200, "12")
        assert answer.json()["fence"] > 0
        async with app.state.redlock.lock("seat:12"):
            assert (await client.post("/seats/12")).status_code == 423


async def test_the_aiohttp_example_of_the_readme_answers_423_while_the_lock_is_held(
    five_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = (await names_of(example("web.Application("), five_nodes, monkeypatch))["app"]
    async with TestClient(TestServer(app)) as client:
        async with client.post("/seats/12") as answer:
            assert answer.status == 200
            assert (await answer.json())["fence"] > 0
        async with app[REDLOCK].lock("seat:12"), client.post("/seats/12") as answer:
            assert answer.status == 423


async def test_the_worker_of_the_readme_waits_for_the_lock_of_its_call(
    five_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = await names_of(example(".guard("), five_nodes, monkeypatch)
    async with Redlock(five_nodes.urls) as other:
        async with other.lock("report:7"):
            working = asyncio.create_task(names["main"]())

            async def somebody_waits() -> bool:
                return bool((await other.inspect("report:7")).waiting)

            await eventually(somebody_waits)
            assert not working.done()
        await working


def test_every_example_of_the_readme_is_run_by_a_test() -> None:
    assert len(blocks(README)) == 4


def test_the_readme_is_short_and_has_nothing_that_only_a_test_needs() -> None:
    assert len(TEXT.splitlines()) <= 150
    assert "<!--" not in TEXT
    for language, code in re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL):
        assert language
        assert max(map(len, code.splitlines())) <= 88
    assert [
        line for line in TEXT.splitlines() if len(line) > 100 and not line.startswith("|")
    ] == []


def test_the_readme_opens_with_one_sentence_and_keeps_its_lists_short() -> None:
    opening = TEXT.split("\n\n")[1]
    assert len(re.findall(r"[.!?:](?=\s|$)", opening)) == 1
    not_promised = TEXT.partition("\n## What it does not promise\n")[2].partition("\n## ")[0]
    assert 1 <= len(not_promised.strip().splitlines()) <= 5
    measured = TEXT.partition("\n## Measured\n")[2].partition("\n## ")[0]
    head, rule, *rows = [line for line in measured.splitlines() if line.startswith("|")]
    assert (head.count("|"), rule.count("|"), len(rows)) == (4, 4, 10)


def test_the_readme_names_every_extra_that_is_meant_for_users() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    install = TEXT.partition("\n## Install\n")[2].partition("\n## ")[0]
    listed = re.findall(r"`(\w+)`", install.partition("Extras")[2])
    assert sorted(listed) == sorted(project["optional-dependencies"].keys() - {"docs"})
