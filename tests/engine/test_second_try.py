"""Attempts that do not wait, by several processes in one instant: one process gets the lock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockHeld, RedlockClosed
from aioredlock_ng._core.backoff import second_try_delay
from tests.support.rig import NODE_TIMEOUT, WAY

if TYPE_CHECKING:
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time

SLOTS = 200


async def rivals(rig: Rig) -> list[Process]:
    """Return one process near each node. Simultaneous attempts of them split the votes."""
    return [await rig.process(near=index) for index in range(len(rig.servers))]


async def between_the_tries(rig: Rig) -> list[asyncio.Future[object]]:
    """Tries of three rivals that have split the votes, taken that back and not asked again yet."""
    tries = [
        asyncio.ensure_future(process.lock("a").try_acquire()) for process in await rivals(rig)
    ]
    await asyncio.sleep(2.1 * WAY)
    assert [process.redlock.stats().attempts for process in rig.processes] == [1, 1, 1]
    assert not any(one.done() for one in tries)
    return tries


@pytest.mark.parametrize("min_hold", [None, 5.0, 30.0])
async def test_one_of_three_processes_that_try_in_one_instant_gets_the_lock(
    rig: Rig, min_hold: float | None
) -> None:
    processes, nobody = await rivals(rig), 0
    for slot in range(SLOTS):
        tries = [
            process.lock(f"cron:{slot}", min_hold=min_hold).try_acquire() for process in processes
        ]
        leases = [lease for lease in await asyncio.gather(*tries) if lease is not None]
        assert len(leases) <= 1
        nobody += not leases
        for lease in leases:
            await lease.release()
    assert all(process.redlock.stats().attempts <= 2 * SLOTS for process in processes)
    assert nobody <= SLOTS // 20, "of tries that are all split at first"


async def test_a_holder_without_one_node_costs_no_second_try(rig: Rig) -> None:
    holder, process = await rig.process(), await rig.process()
    rig.disconnect(2)
    lease = await holder.lock("a").acquire()
    rig.connect(2)
    await asyncio.sleep(2 * NODE_TIMEOUT)
    assert await process.lock("a").try_acquire() is None
    assert process.redlock.stats().attempts == 1
    await lease.release()


async def test_a_lock_held_by_another_task_of_the_process_costs_no_second_try(rig: Rig) -> None:
    process = await rig.process()
    rig.disconnect(2)
    lease = await process.lock("a").acquire()
    rig.connect(2)
    with pytest.raises(LockHeld):
        await process.lock("a", blocking_timeout=0).acquire()
    assert process.redlock.stats().attempts == 2
    await lease.release()


async def test_a_try_cancelled_before_its_second_attempt_leaves_no_key_and_no_timer(
    rig: Rig,
) -> None:
    tries = await between_the_tries(rig)
    for one in tries:
        one.cancel()
    await asyncio.wait(tries)
    await asyncio.sleep(NODE_TIMEOUT)
    assert rig.clean
    assert [process.redlock.stats().attempts for process in rig.processes] == [1, 1, 1]


@pytest.mark.parametrize("after", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
async def test_a_try_cancelled_in_its_second_attempt_leaves_no_key(rig: Rig, after: float) -> None:
    tries = await between_the_tries(rig)

    def attempts() -> int:
        return sum(process.redlock.stats().attempts for process in rig.processes)

    while attempts() == 3:
        await asyncio.sleep(WAY / 10)
    await asyncio.sleep(after * WAY)
    for one in tries:
        one.cancel()
    await asyncio.wait(tries)
    for one in tries:
        if not one.cancelled() and (lease := one.result()) is not None:
            await lease.release()  # type: ignore[attr-defined]
    await asyncio.sleep(NODE_TIMEOUT)
    assert rig.clean


async def test_closing_ends_a_try_between_its_attempts(rig: Rig) -> None:
    tries = await between_the_tries(rig)
    for process in rig.processes:
        await process.redlock.aclose()
    assert {type(one.exception()) for one in tries} == {RedlockClosed}
    assert rig.clean


@pytest.mark.parametrize("took", [0.0, 0.0003, 0.01, 0.1, 5.0])
def test_the_second_try_is_within_the_node_timeout(took: float) -> None:
    first, last = (second_try_delay(took, 0.1, draw) for draw in (0.0, 0.999))
    assert min(took, 0.0125) <= first < last < 0.0625


@pytest.mark.parametrize("took", [0.0, 0.0003, 0.004, 0.01])
def test_second_tries_are_spread_over_several_round_trips(took: float) -> None:
    first, last = (second_try_delay(took, 0.1, draw) for draw in (0.0, 0.999))
    assert last - first > 3 * took
