"""The requests of a waiter to each node.

None comes after the attempt that serves the waiter, and each fits the rights of the node.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._engine.waiting.place import REFRESH_EVERY
from aioredlock_ng._nodes.memory import MemoryNode
from tests.engine.test_left_queues import queues
from tests.engine.test_queue import Silent, silent_process
from tests.support.rig import NODE_TIMEOUT, WAY
from tests.support.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from aioredlock_ng._nodes.port import Sink
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time

KEY = b"a"


def waiting(process: Process) -> asyncio.Future[Lease]:
    return asyncio.ensure_future(process.lock("a").acquire())


async def until_asked(process: Process, name: str, *, on: int) -> None:
    """Wait until the script `name` is sent to this node."""
    node, sent = process.nodes[on], asyncio.Event()

    def ask(sink: Sink, index: int, ask: Any = node.ask) -> None:
        ask(sink, index)
        if sink.command.script.name == name:
            sent.set()

    node.ask = ask  # type: ignore[method-assign]
    await sent.wait()


async def test_a_waiter_that_asks_as_a_node_comes_back_is_in_no_queue_once_it_is_served(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(KEY, ttl=1.0)
    lease = waiting(process)
    await asyncio.sleep(NODE_TIMEOUT)
    process.nodes[0].disconnect()
    await asyncio.sleep(NODE_TIMEOUT)
    # The keys expire while the process stands still. The connection is the first thing that it
    # hears of.
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.advance(1.0)
    process.nodes[0].connect()
    own = await lease
    await asyncio.sleep(NODE_TIMEOUT / 2)
    assert queues(rig) == [0, 0, 0]
    await own.release()


async def test_a_task_that_inherits_a_place_while_a_node_is_away_is_in_no_queue_once_it_is_served(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(KEY, ttl=600)
    first, second = waiting(process), waiting(process)
    await asyncio.sleep(NODE_TIMEOUT)
    process.nodes[0].disconnect()
    await asyncio.sleep(NODE_TIMEOUT)
    rig.vacate(KEY)
    await until_asked(process, "acquire_guarded", on=1)
    first.cancel()
    own = await second
    await asyncio.sleep(NODE_TIMEOUT / 2)
    assert queues(rig) == [1, 0, 0], "node 0 has not heard of it"
    await own.release()


class Untold(MemoryNode):
    """A connection over which the server reports no change."""

    @property
    def tracking(self) -> bool:
        return False

    def invalidated(self, keys: list[bytes] | None) -> None:
        if keys is None:
            super().invalidated(None)


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_a_deletion_by_another_client_is_noticed_at_once_where_a_quorum_reports_changes(
    rig: Rig,
) -> None:
    process = rig.new_process()
    for node in process.nodes[:2]:
        node.__class__ = Untold
    await process.redlock.open()
    rig.occupy(KEY, ttl=600)
    lease = waiting(process)
    await asyncio.sleep(NODE_TIMEOUT)
    rig.vacate(KEY, on=[0, 1, 3])
    async with asyncio.timeout(NODE_TIMEOUT):
        await (await lease).release()


async def test_where_no_node_reports_changes_a_waiter_polls_ten_times_a_second(rig: Rig) -> None:
    process = rig.new_process()
    for node in process.nodes:
        node.__class__ = Untold
    await process.redlock.open()
    rig.occupy(KEY, ttl=600)
    lease = waiting(process)
    await asyncio.sleep(NODE_TIMEOUT)
    asked = process.questions()
    await asyncio.sleep(10)
    rounds = sum(command.script.name == "stand" for command in asked) / 3
    assert 100 - 1 <= rounds <= 100 * 4 / 3 + 1
    rig.vacate(KEY)
    async with asyncio.timeout(NODE_TIMEOUT + 4 * WAY):
        await (await lease).release()


async def test_a_waiter_polls_once_a_quorum_of_nodes_has_come_back_without_messages(
    rig: Rig,
) -> None:
    holder, other = await rig.process(), await rig.process()
    lease = await holder.lock("a").acquire()
    first = waiting(other)
    await asyncio.sleep(NODE_TIMEOUT)
    process = rig.new_process()
    for node in process.nodes[1:]:
        node.__class__ = Silent
        node.server.up = False
    await process.redlock.open()
    for node in process.nodes[1:]:
        node.server.up = True
    second = waiting(process)
    await asyncio.sleep(NODE_TIMEOUT)
    for node in process.nodes[1:]:
        node.connect()
    await asyncio.sleep(NODE_TIMEOUT)
    asked = process.questions()
    await asyncio.sleep(10)
    assert sum(command.script.name == "stand" for command in asked) >= 3 * (100 - 1)
    await lease.release()
    await (await first).release()
    async with asyncio.timeout(NODE_TIMEOUT + 4 * WAY):
        await (await second).release()


async def test_a_line_that_backs_off_stays_out_of_the_queue_of_a_node_whose_key_changes(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(KEY, ttl=600)
    lease = waiting(process)
    await asyncio.sleep(NODE_TIMEOUT)
    rig.disconnect(1, 2)
    await until_asked(process, "leave", on=0)
    await asyncio.sleep(2 * WAY)
    assert queues(rig)[0] == 0
    rig.occupy(KEY, ttl=600, on=[0], value=b"renewed")
    await asyncio.sleep(2 * WAY)
    assert queues(rig)[0] == 0
    lease.cancel()


async def test_a_hand_over_to_a_waiter_that_tracks_the_key_costs_no_refresh(rig: Rig) -> None:
    holder, process = await rig.process(), await rig.process()
    lease = await holder.lock("a").acquire()
    second = waiting(process)
    # By now the waiter tracks the key. The holder has not watched it yet.
    await asyncio.sleep(0.06)
    # The waiter gets the message and the report of one node before those of the others.
    rig.ways[1] = rig.ways[2] = 5 * WAY
    asked = process.questions()
    await lease.release()
    own = await second
    assert [command.script.name for command in asked] == ["acquire_guarded"] * 3
    await own.release()


async def test_a_refresh_under_way_is_not_sent_again_once_its_waiter_is_served_or_gone(
    rig: Rig,
) -> None:
    holder, process = await rig.process(), await rig.process()
    sent: list[Sink] = []
    node = process.nodes[0]

    def ask(sink: Sink, index: int, ask: Any = node.ask) -> None:
        if sink.command.script.name == "stand":
            sent.append(sink)
        ask(sink, index)

    node.ask = ask  # type: ignore[method-assign]
    for served in (True, False):
        lease = await holder.lock("a").acquire()
        second = waiting(process)
        await until_asked(process, "stand", on=1)
        assert sent[-1].stands()
        if served:
            await lease.release()
            await (await second).release()
        else:
            second.cancel()
            await asyncio.wait([second])
            await asyncio.sleep(0)
            await lease.release()
        assert not sent[-1].stands()


async def test_a_waiter_that_polls_does_not_ask_a_node_that_refuses_each_time(rig: Rig) -> None:
    process = await silent_process(rig)
    rig.occupy(KEY, ttl=600, on=[0])
    server = rig.servers[1]

    def execute(command: Any, by: Any, execute: Any = server.execute) -> Any:
        if command.script.name == "acquire_guarded":
            return Refusal("OOM command not allowed when used memory > 'maxmemory'.")
        return execute(command, by)

    server.execute = execute  # type: ignore[method-assign]
    lease = waiting(process)
    await asyncio.sleep(30)
    # The key is free on a quorum of nodes, but one of these nodes refuses to set it.
    assert 2 <= process.redlock.stats().attempts <= 30 / (REFRESH_EVERY / 2) + 2
    lease.cancel()


async def test_a_waiter_makes_no_attempt_because_other_nodes_answer_a_refresh_later(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(KEY, ttl=600)
    rig.ways[:] = [5 * WAY, 45 * WAY, 45 * WAY]
    lease = waiting(process)
    await asyncio.sleep(10 * NODE_TIMEOUT)
    assert process.redlock.stats().attempts == 1
    lease.cancel()
