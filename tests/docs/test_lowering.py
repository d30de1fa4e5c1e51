"""The steps of operations.md lower `max_ttl` on real servers in use. Its warnings are true."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng.testing import LocalNodes
from tests.integration.helpers import SHORT_GUARD, state_of
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioredlock_ng import Redlock

pytestmark = pytest.mark.once

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
MARKER = "aioredlock_ng:marker"
WRONG = {"max_ttl": 3600.0, "node_timeout": 0.5}
LOWER = str(int(SHORT_GUARD["max_ttl"] * 1000))
"""The lower `max_ttl` in milliseconds, as in a marker."""


@pytest.fixture
def nodes() -> Iterator[LocalNodes]:
    with LocalNodes(3) as nodes:
        yield nodes


def guards(nodes: LocalNodes) -> list[str]:
    return [
        node.command("GET", MARKER).decode().partition(":")[2].partition(":")[0] for node in nodes
    ]


def lower(nodes: LocalNodes) -> list[str]:
    """Run step 3 and return its output."""
    (script,) = re.findall(
        r"```lua\n(.*?)```", PAGE.partition("## To lower")[2].partition("\n## ")[0], re.DOTALL
    )
    return [node.command("EVAL", script, "1", MARKER, LOWER).decode() for node in nodes]


async def have_the_wrong_one(nodes: LocalNodes) -> None:
    async with nodes.redlock(**WRONG) as redlock:
        async with redlock.lock("order"):
            pass
        await eventually(lambda: guards(nodes) == ["3600000"] * 3)


async def grant(redlock: Redlock) -> None:
    """Acquire and release a lock, even if its short ttl is over before the release."""
    lease = await redlock.lock("order").acquire()
    await lease.release()


async def forget(nodes: LocalNodes, index: int) -> None:
    await asyncio.to_thread(nodes.restart, index)


async def test_neither_a_lower_max_ttl_nor_a_deleted_marker_lowers_the_recorded_time(
    nodes: LocalNodes,
) -> None:
    await have_the_wrong_one(nodes)
    async with nodes.redlock(**SHORT_GUARD) as redlock:
        await grant(redlock)
        assert guards(nodes) == ["3600000"] * 3
        nodes[2].command("DEL", MARKER)
        await eventually(lambda: state_of(redlock, 2) == "quarantined")
        await eventually(lambda: guards(nodes)[2] == "3600000")


async def test_the_steps_lower_the_time_without_a_pause(nodes: LocalNodes) -> None:
    await have_the_wrong_one(nodes)
    async with nodes.redlock(**SHORT_GUARD) as before:
        # One node waits for an hour, and votes four seconds after the marker was lowered.
        await forget(nodes, 2)
        await eventually(lambda: state_of(before, 2) == "quarantined")
        # It is from the moment in which nobody finds a marker there: one is on its way.
        await eventually(lambda: guards(nodes)[2] == "3600000")
        shown = lower(nodes)
        assert [marker.count(":") for marker in shown] == [1, 1, 2]
        await grant(before)
        assert guards(nodes) == [LOWER] * 3
        await eventually(lambda: state_of(before, 2) == "up")
        # A process that was there before still has the old time: step 4.
        await forget(nodes, 2)
        await eventually(lambda: guards(nodes)[2] == "3600000")
        lower(nodes)
    async with nodes.redlock(**SHORT_GUARD) as anew:
        await eventually(lambda: [node.state for node in anew.nodes] == ["up"] * 3)
        await forget(nodes, 1)
        await eventually(lambda: guards(nodes) == [LOWER] * 3)
        await eventually(lambda: state_of(anew, 1) == "up")
        await grant(anew)
        assert guards(nodes) == [LOWER] * 3


async def test_the_script_lowers_the_time_of_nodes_that_all_wait(nodes: LocalNodes) -> None:
    async with nodes.redlock(**WRONG, recovery_guard="strict") as wrong:
        await eventually(lambda: [node.state for node in wrong.nodes] == ["quarantined"] * 3)
    assert [marker.count(":") for marker in lower(nodes)] == [2] * 3
    async with nodes.redlock(**SHORT_GUARD) as redlock, asyncio.timeout(60):
        await grant(redlock)


async def test_the_script_leaves_a_missing_marker_and_a_founding_marker_alone(
    nodes: LocalNodes,
) -> None:
    founding = f"{nodes[1].info()['run_id']}:3600000:1:nonce"
    nodes[1].command("SET", MARKER, founding)
    assert lower(nodes) == ["", founding, ""]
    assert nodes[0].command("EXISTS", MARKER) == b"0"


async def test_deleting_every_marker_lowers_the_time_if_everything_may_stop(
    nodes: LocalNodes,
) -> None:
    await have_the_wrong_one(nodes)
    for node in nodes:
        node.command("DEL", MARKER)
    async with nodes.redlock(**SHORT_GUARD) as redlock:
        # With the old time, the nodes would grant nothing for an hour.
        async with asyncio.timeout(60):
            await grant(redlock)
        await eventually(lambda: guards(nodes) == [LOWER] * 3)


async def test_a_node_that_keeps_its_marker_brings_the_old_time_back(nodes: LocalNodes) -> None:
    await have_the_wrong_one(nodes)
    for node in list(nodes)[:2]:
        node.command("DEL", MARKER)
    async with nodes.redlock(**SHORT_GUARD):
        await eventually(lambda: guards(nodes) == ["3600000"] * 3)
