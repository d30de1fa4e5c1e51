"""Repairs of a lease: one at a time on each node, and again if a key is lost again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng._core.votes import Refusal

if TYPE_CHECKING:
    from aioredlock_ng._scripts import Command
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time

ON_ITS_WAY = 0.2
"""Seconds that a repair needs on its way to a slow node and back."""


async def test_several_reports_of_a_missing_key_cause_one_repair(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    await asyncio.sleep(1.0)
    rig.vacate(b"a", on=[1])
    for _ in range(3):
        await lease.extend()
    await asyncio.sleep(1.0)
    assert rig.values(b"a")[1] == lease.token.encode()
    assert process.redlock.stats().repairs == 1


async def test_no_second_repair_is_sent_while_the_first_is_under_way(rig: Rig) -> None:
    process = await rig.process(node_timeout=1.0)
    rig.occupy(b"a", on=[1])
    lease = await process.lock("a").acquire()
    rig.vacate(b"a", on=[1])
    rig.hang(1)
    for _ in range(3):
        await lease.extend()
    assert process.redlock.stats().repairs == 1
    rig.resume()
    await asyncio.sleep(ON_ITS_WAY)
    assert rig.values(b"a")[1] == lease.token.encode()


async def test_a_key_that_is_lost_again_is_repaired_again(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    for _ in range(3):
        rig.vacate(b"a", on=[1])
        await lease.extend()
        await asyncio.sleep(1.0)
        assert rig.values(b"a")[1] == lease.token.encode()


async def test_a_node_that_is_not_connected_is_sent_no_repair(rig: Rig) -> None:
    process = await rig.process()
    rig.stop(1)
    lease = await process.lock("a").acquire()
    for _ in range(3):
        await lease.extend()
    assert process.redlock.stats().repairs == 0
    rig.start(1)
    await asyncio.sleep(0.5)
    await lease.extend()
    await asyncio.sleep(0.5)
    assert rig.values(b"a")[1] == lease.token.encode()


async def test_a_lease_that_is_released_before_the_answer_to_its_repair_leaves_no_key(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.refuse("LOADING Redis is loading the dataset in memory", 1)
    lease = await process.lock("a").acquire()
    rig.refuse(None, 1)
    rig.ways[1] = ON_ITS_WAY / 2
    await lease.extend()
    assert process.redlock.stats().repairs == 1
    await lease.release()
    await asyncio.sleep(1.0)
    assert rig.clean


async def test_a_repair_that_a_node_refused_is_sent_again_with_the_next_renewal(rig: Rig) -> None:
    process = await rig.process()
    rig.stop(1)
    lease = await process.lock("a").acquire()
    execute = rig.servers[1].execute

    def refuse(command: Command, by: Any) -> Any:
        repair = command.script.name == "repair"
        return Refusal("OOM command not allowed") if repair else execute(command, by)

    rig.servers[1].execute = refuse  # type: ignore[method-assign]
    rig.start(1)
    await asyncio.sleep(0.5)
    await lease.extend()
    await asyncio.sleep(0.5)
    assert rig.values(b"a")[1] is None
    rig.servers[1].execute = execute  # type: ignore[method-assign]
    asked = process.questions()
    await lease.extend()
    assert [command.script.name for command in asked].count("repair") == 1
    await asyncio.sleep(0.5)
    assert rig.values(b"a")[1] == lease.token.encode()


async def test_a_node_that_forgot_without_a_message_is_noticed_by_the_repair_that_it_refuses(
    rig: Rig,
) -> None:
    process = await rig.process()
    # The node is there and up, and reports no change.
    process.nodes[1].invalidated = lambda keys: None  # type: ignore[method-assign]
    lease = await process.lock("a").acquire()
    await asyncio.sleep(1.0)
    rig.servers[1].flush()
    await asyncio.sleep(0.1)
    assert [node.state for node in process.redlock.nodes] == ["up", "up", "up"]
    await lease.extend()
    await asyncio.sleep(0.1)
    assert [node.state for node in process.redlock.nodes] == ["up", "quarantined", "up"]
    assert rig.values(b"a")[1] is None
    assert lease.valid


async def test_a_node_whose_quarantine_prevented_its_grant_gets_the_key_after_the_quarantine(
    rig: Rig,
) -> None:
    process = await rig.process(max_ttl=5.0, ttl=3.0)
    rig.servers[1].restart()
    await asyncio.sleep(0.2)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(4.0)
    assert [node.state for node in process.redlock.nodes] == ["up", "quarantined", "up"]
    assert process.redlock.stats().renewals > 0
    assert process.redlock.stats().repairs == 0
    await asyncio.sleep(4.0)
    assert rig.values(b"a")[1] == lease.token.encode()


async def test_a_lease_that_is_abandoned_before_its_repair_is_not_repaired(rig: Rig) -> None:
    process = await rig.process(ttl=3.0)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.5)
    rig.vacate(b"a", on=[1])
    await lease.extend()
    await asyncio.sleep(0.02)
    lease.abandon()
    await asyncio.sleep(0.5)
    assert rig.values(b"a")[1] is None
    assert process.redlock.stats().repairs == 0
