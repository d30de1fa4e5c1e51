"""The Python of docs/fencing.md runs, on real servers in place of the addresses that it names."""

from __future__ import annotations

import ast
import inspect
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import Redlock
from aioredlock_ng.fencing import StaleFence

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.testing import LocalServer
    from tests.support.node_set import NodeSet

PAGE = Path(__file__).parents[2] / "docs" / "fencing.md"


async def run_block(index: int, **given: Any) -> dict[str, Any]:
    """Run one Python block of the page with these names; return what it defines."""
    source = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )[index]
    source = source.replace("redis://10.0.1.1", given.get("url", ""))
    done = eval(
        compile(source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True),
        given,
    )
    if inspect.isawaitable(done):
        await done
    return given


async def test_the_redis_example_adds_up_and_refuses(
    three_nodes: NodeSet, start_server: Callable[..., LocalServer]
) -> None:
    url = start_server().url
    async with Redlock(three_nodes.urls, recovery_guard=None) as redlock:
        for total in (1999, 2 * 1999):
            names = await run_block(0, redlock=redlock, url=url)
            async with names["client"] as client:
                assert int(await client.hget("order:42", "cents")) == total
                with pytest.raises(StaleFence):
                    await names["orders"].hset(
                        "order:42", {"cents": 0}, fence=names["lease"].fence - 1
                    )


async def test_the_service_example_reads_moves_and_refuses() -> None:
    before = time.time_ns() // 1000
    names = await run_block(1)
    read, move, fence = names["read"], names["move"], time.time_ns() // 1000
    assert read("arm", fence) == 0
    move("arm", 5, fence)
    assert read("arm", fence + 1) == 5
    for late in (fence, before - 1):
        with pytest.raises(StaleFence):
            move("arm", 9, late)
    with pytest.raises(StaleFence):
        read("another", before - 1)
    assert read("arm", fence + 1) == 5
