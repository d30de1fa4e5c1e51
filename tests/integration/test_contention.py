"""Several managers (as several processes have them) that want the same resource on real nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from aioredlock_ng import Redlock
from tests.integration.helpers import state_of
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.node_set import NodeSet


@pytest.mark.faults
async def test_a_contender_whose_majority_went_away_leaves_no_key_on_the_rest(five_nodes: NodeSet) -> None:
    async with Redlock(five_nodes.urls) as holder, Redlock(five_nodes.urls) as contender:
        # Contenders ask one node first; it is to be one of the two that stay.
        order = next(name for name in map("order:{}".format, range(100)) if crc32(name.encode()) % 5 == 1)
        lease = await holder.lock(order, ttl=60).acquire()
        waiting = asyncio.create_task(contender.lock(order, ttl=60).acquire())
        await eventually(lambda: contender.stats().refused > 0)
        for index in (0, 2, 3):
            await asyncio.to_thread(five_nodes.crash, index)
        await eventually(lambda: all(state_of(contender, index) == "down" for index in (0, 2, 3)))
        refused = contender.stats().refused
        await lease.release()
        await eventually(lambda: contender.stats().refused > refused)
        waiting.cancel()
        await asyncio.wait([waiting])
        await eventually(lambda: not any(contender.nodes[index].pending for index in (1, 4)))
        assert [five_nodes[index].command("EXISTS", order) for index in (1, 4)] == [b"0", b"0"]
