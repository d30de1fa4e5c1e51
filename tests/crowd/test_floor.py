"""The floor of the benchmarks sends the library's own scripts, and servers accept them."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

from aioredlock_ng.testing.nodes import LocalNodes
from benchmarks.environments import ROOT
from benchmarks.floor import Bare, Floor

if TYPE_CHECKING:
    import pytest


def test_the_floor_acquires_and_releases_on_servers() -> None:
    async def cycle(kind: type[Floor], urls: list[str]) -> None:
        floor = await kind.connect(urls)
        async with asyncio.timeout(20):
            for _ in range(3):
                await floor.release(await floor.acquire("floor", 10_000))
        floor.close()

    for kind in (Floor, Bare):
        with LocalNodes(3) as nodes:
            asyncio.run(cycle(kind, list(nodes.urls)))


def test_the_waiting_floor_is_woken_when_a_majority_of_its_keys_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "drivers"))
    wakeup_floor = importlib.import_module("wakeup_floor")

    async def waited(nodes: LocalNodes) -> None:
        async with asyncio.timeout(20), wakeup_floor.connect(list(nodes.urls)) as wait:
            for node in nodes:
                node.command("SET", "hot", "somebody")
            woken = await wait("hot")
            for node in nodes:
                node.command("DEL", "hot")
            await woken

    with LocalNodes(3) as nodes:
        asyncio.run(waited(nodes))
