"""The Python of docs/telemetry.md runs, on real nodes in place of the addresses that it names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import prometheus_client
import pytest

import aioredlock_ng.events
from tests.support.pages import Block, blocks, run

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet

PAGE = Path(__file__).parents[2] / "docs" / "telemetry.md"


@pytest.mark.parametrize("block", [pytest.param(block, id=block.id) for block in blocks(PAGE)])
async def test_a_block_of_the_page_runs(
    block: Block, three_nodes: NodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = prometheus_client.start_http_server
    # Tests run side by side: any free port instead of the page's.
    monkeypatch.setattr(
        prometheus_client, "start_http_server", lambda port, **rest: start(0, **rest)
    )
    await run(block, three_nodes, monkeypatch)


def test_the_page_explains_every_event() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in set(aioredlock_ng.events.__all__) - {"Event", "EventSink"}:
        assert f"`{name}`" in page
        for field in getattr(aioredlock_ng.events, name).__dataclass_fields__:
            assert f"`{field}`" in page, f"{name}.{field}"
