"""A waiter that is gone is gone from every node's queue, though a node was away when the waiter
left.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng._scripts.catalogue import LEAVE
from tests.support.rig import NODE_TIMEOUT, WAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time


def queues(rig: Rig, key: bytes = b"a") -> list[int]:
    """How many stand in each node's queue."""
    return [len(server.queues.members(key)) for server in rig.servers]


def cut(rig: Rig) -> Callable[[], None]:
    rig.disconnect(0)
    return lambda: rig.connect(0)


def cut_later(rig: Rig) -> Callable[[], None]:
    """Cut the connections one millisecond later, so that requests on their way are lost."""
    asyncio.get_running_loop().call_later(WAY / 2, rig.disconnect, 0)
    return lambda: rig.connect(0)


@pytest.mark.parametrize("away", [cut, cut_later])
async def test_a_waiter_that_gives_up_while_a_node_is_away_leaves_its_queue_when_the_node_is_back(
    rig: Rig, away: Callable[[Rig], Callable[[], None]]
) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(NODE_TIMEOUT)
    assert queues(rig) == [1, 1, 1]
    back = away(rig)
    waiting.cancel()
    await asyncio.sleep(NODE_TIMEOUT)
    assert queues(rig) == [1, 0, 0]
    back()
    await asyncio.sleep(NODE_TIMEOUT)
    assert queues(rig) == [0, 0, 0]


@pytest.mark.parametrize("away", [cut, cut_later])
async def test_a_waiter_that_is_served_while_a_node_is_away_leaves_its_queue_when_the_node_is_back(
    rig: Rig, away: Callable[[Rig], Callable[[], None]]
) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(NODE_TIMEOUT)
    back = away(rig)
    rig.vacate(b"a", on=[1, 2])
    await (await waiting).release()
    await asyncio.sleep(NODE_TIMEOUT)
    assert queues(rig) == [1, 0, 0]
    back()
    await asyncio.sleep(NODE_TIMEOUT)
    assert queues(rig) == [0, 0, 0]


async def test_a_name_reserved_for_a_set_that_gave_up_is_free_on_a_node_that_was_away(
    rig: Rig,
) -> None:
    process, other = await rig.process(), await rig.process()
    rig.occupy(b"b")
    waiting = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(NODE_TIMEOUT)
    rig.disconnect(0)
    waiting.cancel()
    await asyncio.sleep(NODE_TIMEOUT)
    rig.connect(0)
    await asyncio.sleep(2 * WAY)
    lease = await other.lock("a").try_acquire()
    assert lease is not None
    await asyncio.sleep(2 * WAY)
    assert lease.nodes == (3, 3)
    await lease.release()


async def test_a_waiter_that_came_back_keeps_its_place_on_a_node_that_was_away(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    rig.occupy(b"a")
    first = asyncio.ensure_future(process.lock("a").acquire())
    second = asyncio.ensure_future(other.lock("a").acquire())
    await asyncio.sleep(NODE_TIMEOUT)
    rig.disconnect(0, 1)
    await asyncio.sleep(1.0)
    rig.connect(0, 1)
    await asyncio.sleep(5.0)
    assert queues(rig) == [2, 2, 2]
    rig.vacate(b"a")
    await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
    for waiting in sorted((first, second), key=asyncio.Future.done, reverse=True):
        await (await waiting).release()
    await asyncio.sleep(NODE_TIMEOUT)
    assert queues(rig) == [0, 0, 0]


async def test_nothing_is_remembered_of_waiters_that_came_while_a_node_was_away(rig: Rig) -> None:
    process = await rig.process()
    rig.disconnect(0)
    rig.occupy(b"a")
    for _ in range(5):
        waiting = asyncio.ensure_future(process.lock("a").acquire())
        await asyncio.sleep(NODE_TIMEOUT)
        waiting.cancel()
        await asyncio.wait([waiting])
    await asyncio.sleep(NODE_TIMEOUT)
    assert not any(node.owed for node in process.redlock.nodes)


async def test_a_served_waiter_leaves_no_command_for_a_node_whose_queue_it_never_entered(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.disconnect(0)
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(NODE_TIMEOUT)
    rig.vacate(b"a", on=[1, 2])
    lease = await waiting
    assert not any(node.owed for node in process.redlock.nodes)
    await lease.release()


@pytest.mark.parametrize("refusing", [[0], [1, 2], [0, 1, 2]])
async def test_a_waiter_that_gives_up_leaves_the_queues_of_nodes_that_refused_the_command(
    rig: Rig, refusing: list[int]
) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(NODE_TIMEOUT)
    rig.refuse("BUSY Redis is busy", *refusing)
    waiting.cancel()
    await asyncio.sleep(NODE_TIMEOUT)
    assert queues(rig) == [int(index in refusing) for index in range(3)]
    rig.refuse(None, *refusing)
    await asyncio.sleep(1.0)
    assert queues(rig) == [0, 0, 0]


async def test_new_readers_do_not_wait_for_a_writer_that_gave_up_while_the_nodes_were_busy(
    rig: Rig,
) -> None:
    process, other = await rig.process(), await rig.process()
    early = await other.redlock.rwlock("catalog").read().acquire()
    waiting = asyncio.ensure_future(process.redlock.rwlock("catalog").write().acquire())
    await asyncio.sleep(NODE_TIMEOUT)
    rig.refuse("BUSY Redis is busy", 0, 1)
    waiting.cancel()
    await asyncio.sleep(NODE_TIMEOUT)
    rig.refuse(None, 0, 1)
    third = await rig.process()
    late = await third.redlock.rwlock("catalog", blocking_timeout=1.0).read().acquire()
    assert early.valid
    await late.release()
    await early.release()


async def test_a_repeated_command_to_leave_does_not_remove_a_waiter_that_came_back(
    rig: Rig,
) -> None:
    """A waiter that cannot reach a quorum leaves the queues, and soon enters them again."""
    process = await rig.process()
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(NODE_TIMEOUT)
    asked = process.questions()
    rig.refuse("BUSY Redis is busy", 0)
    rig.disconnect(1, 2)
    while not any(command.script is LEAVE for command in asked):
        await asyncio.sleep(WAY)
    await asyncio.sleep(2 * WAY)
    rig.refuse(None, 0)
    rig.connect(1, 2)
    await asyncio.sleep(0.3)
    assert queues(rig) == [2, 1, 1]
    await asyncio.sleep(1.0)
    assert queues(rig) == [1, 1, 1]
    waiting.cancel()
    await asyncio.sleep(NODE_TIMEOUT)
    assert queues(rig) == [0, 0, 0]
