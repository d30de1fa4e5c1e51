"""The Python blocks of the pages run, against real nodes in place of the addresses that they name;
tables are what they say.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Sentinel

from aioredlock_ng import Options, Redlock, errors
from tests.support.eventually import eventually
from tests.support.pages import Block, blocks, run

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet
    from tests.support.sentinel import SentinelSet

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (
    "choosing",
    "deployment",
    "guarantees",
    "options",
    "one-redis",
    "lock-order",
    "semaphore",
    "rwlock",
    "min-hold",
    "sync",
    "troubleshooting",
    "blocked-loop",
)
BLOCKS = [block for page in PAGES for block in blocks(DOCS / f"{page}.md")]


def text(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, id=block.id) for block in BLOCKS if "Sentinel" not in block.source],
)
async def test_every_block_of_a_page_runs(
    block: Block, five_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    five_nodes.found()
    await run(block, five_nodes, monkeypatch)


def test_the_first_page_shows_the_first_program_of_the_readme() -> None:
    # The tests of the README run the program.
    (shown,) = blocks(DOCS / "index.md")
    assert shown.source.strip() == blocks(ROOT / "README.md")[0].source.strip()


async def test_a_primary_under_sentinels_is_a_node(
    five_nodes: NodeSet, sentinel_set: SentinelSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = (block for block in BLOCKS if "Sentinel" in block.source)
    asked: list[Any] = []

    sentinel: Any = Sentinel([sentinel_set.address])  # type: ignore[no-untyped-call]

    def watched(addresses: list[tuple[str, int]]) -> SimpleNamespace:
        asked.extend(addresses)
        return SimpleNamespace(master_for=primary)

    def primary(name: str) -> Any:
        asked.append(name)
        return sentinel.master_for(sentinel_set.name)

    monkeypatch.setattr("redis.asyncio.Sentinel", watched)
    await run(block, five_nodes, monkeypatch)
    assert asked == [("10.0.1.1", 26379), ("10.0.1.2", 26379), ("10.0.1.3", 26379), "locks-a"]
    for client in sentinel.sentinels:
        await client.aclose()


def test_every_page_with_python_is_named_by_a_test() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    with_python = {
        path.stem for path in DOCS.glob("*.md") if "```python" in path.read_text(encoding="utf-8")
    }
    # The shop's own code, in part.
    listings = {"flash-sale"}
    assert {
        page for page in with_python - set(PAGES) - listings if f"{page}.md" not in tests
    } == set()


async def test_the_page_on_operations_shows_the_holder_of_a_lock(
    three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = blocks(DOCS / "operations.md")
    three_nodes.found()
    # The block keeps the answer of the last node, which a busy machine may pause.
    async with Redlock(three_nodes.urls, node_timeout=3.0) as redlock:
        lease = await redlock.lock("order:42").acquire()
        names: dict[str, Any] = {"redlock": redlock}
        with pytest.raises(AssertionError, match="leaves the key of a lock behind"):
            await run(block, three_nodes, monkeypatch, names)
        assert names["info"].held
        assert names["answer"].token == lease.token


def test_the_table_of_ttls_follows_from_the_options() -> None:
    table = text("choosing").partition("<!-- ttl:begin -->")[2].partition("<!-- ttl:end -->")[0]
    rows = [
        [float(cell) for cell in line.strip("|").split("|")]
        for line in table.strip().splitlines()[2:]
    ]
    assert [row[0] for row in rows] == [0.5, 1, 2, 5, 10, 30, 60]
    for ttl, renewed, drift, still, longest in rows:
        options = Options(ttl=ttl)
        assert renewed == pytest.approx(ttl / 3, rel=0.01)
        assert drift == pytest.approx(options.drift(ttl))
        assert still == pytest.approx(ttl - drift - ttl / 3, rel=0.01)
        Options(ttl=ttl, node_timeout=longest)
        with pytest.raises(ValueError, match="raise ttl"):
            Options(ttl=ttl, node_timeout=longest * 1.01)


def test_the_page_on_errors_lists_every_error_with_the_builtin_that_catches_it() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\|", text("errors"), re.MULTILINE)
    found = {
        (
            name,
            next(
                (
                    base.__name__
                    for base in vars(errors)[name].__mro__
                    if base in (ValueError, TimeoutError)
                ),
                "",
            ),
        )
        for name in errors.__all__
        if issubclass(vars(errors)[name], errors.RedlockError) and name != "RedlockError"
    }
    assert set(listed) == found


def test_every_figure_of_the_readme_stands_in_the_page_on_performance() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("\n## Measured\n")[2].partition("\n## ")[0]
    figures = re.findall(r"(?<=\| )[\d.,]+(?: ms)?(?= \|)", table)
    assert len(figures) >= 10
    recorded = re.findall(r"[\d.,]*\d(?: ms)?", text("performance"))
    unknown = {figure for figure in figures if figure not in recorded}
    # A cell with a p50 and a p99 names the unit once.
    assert {figure for figure in unknown if figure.removesuffix(" ms") not in recorded} == set()


async def test_an_uncontended_lock_is_two_commands_to_each_node(five_nodes: NodeSet) -> None:
    five_nodes.found()

    def stats() -> list[int]:
        return [
            int(match[1]) if (match := re.search(rb"cmdstat_evalsha:calls=(\d+)", told)) else 0
            for told in (node.command("INFO", "commandstats") for node in five_nodes)
        ]

    # Neither renewed nor tried again, however slow the machine is.
    async with Redlock(five_nodes.urls, node_timeout=3.0, ttl=60.0) as redlock:

        def all_have_answered() -> bool:
            # A majority decides, and the others may be behind it.
            return all(node.state == "up" and not node.pending for node in redlock.nodes)

        async with redlock.lock("first"):
            pass
        await eventually(all_have_answered)
        before = stats()
        for _ in range(10):
            async with redlock.lock("order:42"):
                pass
        await eventually(all_have_answered)
        assert [after - count for after, count in zip(stats(), before, strict=True)] == [20] * 5
