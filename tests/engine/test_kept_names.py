"""Names that are reserved for a set while it waits for another of its names.

A reservation lasts for 2 s at most, and no longer than the wait of the set.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng._core.queue_formats import is_offer
from aioredlock_ng._engine.waiting.place import REFRESH_EVERY
from aioredlock_ng._engine.waiting.queue_entry import KEPT_FOR
from tests.support.holds import holds
from tests.support.rig import NODE_TIMEOUT, WAY

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time

SOON = 10 * WAY
"""Seconds within which a notified waiter has its lock."""


def now() -> float:
    return asyncio.get_running_loop().time()


def kept(rig: Rig, key: bytes) -> int:
    """How many nodes keep a key for a waiter."""
    return sum(is_offer(value or b"") for value in rig.values(key))


def kill(process: Process) -> None:
    """Let a process end without a word to anybody."""
    for node in process.nodes:
        node.refuse("killed")


async def keeping(rig: Rig, process: Process) -> asyncio.Future[Lease]:
    """A set that waits for `b`, and keeps `a`."""
    rig.occupy(b"b")
    waiting = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(SOON)
    assert kept(rig, b"a") == len(rig.servers)
    return waiting


@pytest.mark.parametrize("apart", [False, True])
async def test_a_set_reserves_the_names_before_the_name_that_it_waits_for(
    rig: Rig, apart: bool
) -> None:
    process = await rig.process()
    other = await rig.process() if apart else process
    waiting = await keeping(rig, process)
    behind = asyncio.ensure_future(other.lock("a").acquire())
    await asyncio.sleep(KEPT_FOR / 2)
    assert not behind.done()
    rig.vacate(b"b")
    async with asyncio.timeout(SOON):
        lease = await waiting
    await lease.release()
    async with asyncio.timeout(SOON):
        await (await behind).release()


@pytest.mark.parametrize("apart", [False, True])
async def test_a_name_reserved_for_a_set_is_free_for_others_after_two_seconds(
    rig: Rig, apart: bool
) -> None:
    process = await rig.process()
    other = await rig.process() if apart else process
    waiting = await keeping(rig, process)
    began = now()
    lease = await other.lock("a").acquire()
    assert now() - began <= KEPT_FOR + SOON
    await lease.release()
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_set_that_waits_for_long_leaves_others_their_turn_again_and_again(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    waiting = await keeping(rig, process)
    told = await holds({"other": (other, ("a",))}, 0.05, 50.0)
    assert told.longest <= 2 * (KEPT_FOR + SOON)
    assert told.counts["other"] >= 50.0 / (KEPT_FOR + REFRESH_EVERY)
    rig.vacate(b"b")
    async with asyncio.timeout(KEPT_FOR):
        await (await waiting).release()


@pytest.mark.parametrize("apart", [False, True])
async def test_a_set_that_waits_for_its_first_name_reserves_no_other_name(
    rig: Rig, apart: bool
) -> None:
    process = await rig.process()
    other = await rig.process() if apart else process
    rig.occupy(b"a")
    waiting = asyncio.ensure_future(process.lock("a", "b", "c").acquire())
    for seconds in (SOON, 0.5, 5.0):
        await asyncio.sleep(seconds)
        for names in (("b",), ("c", "b"), ("c", "d")):
            began = now()
            async with other.lock(*names):
                assert now() - began == pytest.approx(2 * WAY)
    waiting.cancel()
    await asyncio.wait([waiting])


@pytest.mark.parametrize("apart", [False, True])
async def test_nested_locks_in_an_order_that_deadlocks_go_on_when_the_reservation_ends(
    rig: Rig, apart: bool
) -> None:
    process = await rig.process()
    other = await rig.process() if apart else process
    async with process.lock("b"):
        both = asyncio.ensure_future(other.lock("a", "b").acquire())
        await asyncio.sleep(SOON)
        assert kept(rig, b"a") == 3
        began = now()
        async with process.lock("a"):
            assert now() - began <= KEPT_FOR + SOON
            await asyncio.sleep(0.1)
    async with asyncio.timeout(KEPT_FOR):
        await (await both).release()


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("hold", [0.002, 0.05])
async def test_nested_locks_beside_sets_in_the_other_order_make_progress(
    rig: Rig, apart: bool, hold: float
) -> None:
    process = await rig.process()
    other = await rig.process() if apart else process
    end, longest, nested = now() + 60.0, 0.0, 0

    async def nest() -> None:
        nonlocal longest, nested
        while now() < end:
            async with process.lock("b"):
                began = now()
                async with process.lock("a"):
                    longest = max(longest, now() - began)
                    nested += 1
                    await asyncio.sleep(hold)

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(nest())
        told = await holds({"both": (other, ("a", "b")), "one": (other, ("a",))}, hold, 60.0)
    # The set may keep `a` twice: once before the other task that waits for it.
    assert longest <= 2 * (KEPT_FOR + SOON + hold), longest
    assert nested >= 60.0 / (KEPT_FOR + REFRESH_EVERY)
    assert told.counts["one"] >= 60.0 / (KEPT_FOR + REFRESH_EVERY), told


@pytest.mark.parametrize("ways", range(6))
@pytest.mark.parametrize("ends", ["cancelled", "timed out"])
@pytest.mark.parametrize("apart", [False, True])
async def test_a_set_that_gives_up_frees_its_reserved_names_at_once(
    rig: Rig, ways: int, ends: str, apart: bool
) -> None:
    """While it asks, is refused, enters a queue, and waits: between each two of these instants."""
    process = await rig.process()
    other = await rig.process() if apart else process
    rig.occupy(b"b")
    instant = (ways + 0.5) * WAY
    timeout = instant if ends == "timed out" else None
    waiting = asyncio.ensure_future(process.lock("a", "b", blocking_timeout=timeout).acquire())
    await asyncio.sleep(0)
    behind = asyncio.ensure_future(other.lock("a").acquire())
    await asyncio.sleep(instant)
    if ends == "cancelled":
        waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled() or waiting.exception() is not None
    async with asyncio.timeout(SOON):
        await (await behind).release()
    await asyncio.sleep(NODE_TIMEOUT)
    assert rig.keys() == [{b"b"}] * 3
    assert [server.queues.members(key) for server in rig.servers for key in (b"a", b"b")] == [
        []
    ] * 6


@pytest.mark.parametrize("ways", range(6))
@pytest.mark.parametrize("apart", [False, True])
async def test_a_set_that_is_cancelled_while_it_is_served_leaves_its_names_to_others(
    rig: Rig, ways: int, apart: bool
) -> None:
    process = await rig.process()
    other = await rig.process() if apart else process
    waiting = await keeping(rig, process)
    behind = [
        asyncio.ensure_future(other.lock(*names).acquire())
        for names in (("a",), ("b",), ("a", "b"))
    ]
    await asyncio.sleep(0.5)
    rig.vacate(b"b")
    await asyncio.sleep((ways + 0.5) * WAY)
    waiting.cancel()
    await asyncio.wait([waiting])
    if not waiting.cancelled():
        await waiting.result().release()
    async with asyncio.timeout(NODE_TIMEOUT):
        for finished in asyncio.as_completed(behind):
            await (await finished).release()
    await asyncio.sleep(NODE_TIMEOUT)
    assert rig.clean
    assert [server.queues.members(key) for server in rig.servers for key in (b"a", b"b")] == [
        []
    ] * 6


async def test_a_process_that_is_killed_while_it_reserves_names_blocks_them_for_two_seconds(
    rig: Rig,
) -> None:
    process, other = await rig.process(), await rig.process()
    waiting = await keeping(rig, process)
    kill(process)
    rig.vacate(b"b")
    for names in (("b",), ("a", "b"), ("a",)):
        began = now()
        async with other.lock(*names):
            assert now() - began <= KEPT_FOR + SOON
    assert [server.queues.members(key) for server in rig.servers for key in (b"a", b"b")] == [
        []
    ] * 6
    waiting.cancel()
    await asyncio.wait([waiting])
