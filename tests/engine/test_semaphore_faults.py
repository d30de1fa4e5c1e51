"""Semaphores in unusual states: split slots, unequal limits, missing nodes, cancelled calls."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import AcquireTimeout, Lease, LockHeld, QuorumUnreachable
from aioredlock_ng._engine.waiting import line_index
from tests.support.rig import NODE_TIMEOUT, WAY, Process, Rig, occupied

if TYPE_CHECKING:
    from aioredlock_ng import Semaphore

pytestmark = pytest.mark.virtual_time

TRIP = 2 * WAY


def now() -> float:
    return asyncio.get_running_loop().time()


def semaphore(process: Process, limit: int, **settings: Any) -> Semaphore:
    return process.redlock.semaphore("gpu", limit, **settings)


def waiting(process: Process, limit: int, **settings: Any) -> asyncio.Future[Lease]:
    return asyncio.ensure_future(semaphore(process, limit, **settings).acquire())


def taken(process: Process) -> set[int]:
    """Return the slots that a process believes it holds or asks for."""
    return {number for line in process.redlock.engine().lines._all() for number in line.taken}


# -- A semaphore with one slot --------------------------------------------------------------------


async def test_a_semaphore_with_one_slot_refuses_to_let_a_task_wait_for_itself(rig: Rig) -> None:
    process = await rig.process()
    async with semaphore(process, 1):
        with pytest.raises(LockHeld, match="this very task holds it"):
            async with asyncio.timeout(1.0):
                await semaphore(process, 1).acquire()


async def test_the_only_slot_is_noticed_when_another_client_deletes_it(rig: Rig) -> None:
    holder, other = await rig.process(), await rig.process()
    lease = await semaphore(holder, 1).acquire()
    waiter = waiting(other, 1)
    await asyncio.sleep(0.5)
    rig.vacate(b"gpu#1")
    async with asyncio.timeout(0.1):
        await (await waiter).release()
    await asyncio.sleep(0.1)
    assert lease.lost


async def test_a_waiter_does_not_keep_a_lost_slot_of_a_minority_from_its_holder(rig: Rig) -> None:
    holder, other = await rig.process(), await rig.process()
    lease = await semaphore(holder, 1, ttl=3.0).acquire()
    waiter = waiting(other, 1)
    await asyncio.sleep(0.5)
    for gone in range(3):
        rig.vacate(b"gpu#1", on=[gone])
        # The offer to the waiter lives longer. When it ends, the waiter would get another one.
        await asyncio.sleep(0.9 * NODE_TIMEOUT)
        assert rig.values(b"gpu#1") == [lease.token.encode()] * 3
        await asyncio.sleep(15)
    assert not waiter.done()
    await lease.release()
    await (await waiter).release()


async def test_the_grant_of_the_only_slot_is_not_passed_on_after_its_key_was_deleted(
    rig: Rig,
) -> None:
    process, other = await rig.process(), await rig.process()
    blocker = await semaphore(other, 1).acquire()
    tasks = [waiting(process, 1) for _ in range(3)]
    await asyncio.sleep(0.1)
    await blocker.release()
    first = await tasks[0]
    rig.vacate(b"gpu#1")
    thief = await semaphore(other, 1).try_acquire()
    assert thief is not None
    await first.release()
    await asyncio.sleep(5 * TRIP)
    assert not tasks[1].done(), "another process has the slot"
    await thief.release()
    for task in tasks[1:]:
        await (await task).release()


# -- Nodes that disagree --------------------------------------------------------------------------


async def test_a_waiter_does_not_ask_in_vain_while_each_node_has_another_slot_free(
    rig: Rig,
) -> None:
    """Without the recovery guard nothing repairs a key that one node lacks."""
    rig.occupy(b"gpu#1", on=[1, 2])
    rig.occupy(b"gpu#2", on=[0, 2])
    process = await rig.process()
    waiter = waiting(process, 2)
    await asyncio.sleep(2.0)
    assert process.redlock.stats().attempts < 50
    rig.vacate(b"gpu#2")
    async with asyncio.timeout(0.5):
        lease = await waiter
    assert lease.slot == 2
    await lease.release()


async def test_a_waiter_gets_the_free_slot_though_as_many_nodes_name_another_one() -> None:
    async with Rig(5) as rig:
        process = await rig.process()
        rig.occupy(b"gpu#1", on=[2, 3])
        rig.occupy(b"gpu#2")
        rig.stop(4)
        waiter = waiting(process, 2)
        await asyncio.sleep(1.0)
        rig.vacate(b"gpu#2", on=[0, 1, 2, 3])
        async with asyncio.timeout(0.5):
            lease = await waiter
        assert lease.slot == 2
        await lease.release()


# -- Unequal limits -------------------------------------------------------------------------------


async def test_a_slot_that_expires_goes_at_once_to_a_waiter_behind_others_with_lower_limits(
    rig: Rig,
) -> None:
    holder, one, two, high = [await rig.process() for _ in range(4)]
    low = [await semaphore(holder, 2).acquire() for _ in range(2)]
    rig.occupy(b"gpu#3", 2.0)
    waiters = [waiting(one, 2), waiting(two, 2)]
    await asyncio.sleep(0.2)
    third = waiting(high, 3)
    await asyncio.sleep(0.2)
    began = now()
    lease = await third
    assert lease.slot == 3
    assert now() - began < 2.0
    for held in (*low, lease):
        await held.release()
    for waiter in waiters:
        await (await waiter).release()


async def test_a_stopped_process_delays_waiters_behind_others_with_lower_limits_by_one_offer_only(
    rig: Rig,
) -> None:
    holder, stopped, low, high = [await rig.process() for _ in range(4)]
    lows = [await semaphore(holder, 2).acquire() for _ in range(2)]
    top = await semaphore(holder, 3).acquire()
    assert top.slot == 3
    waiters = []
    for process, limit in ((stopped, 3), (low, 2), (high, 3)):
        waiters.append(waiting(process, limit))
        await asyncio.sleep(0.1)
    for node in stopped.nodes:
        node.hang()
    await top.release()
    async with asyncio.timeout(5 * NODE_TIMEOUT):
        lease = await waiters[2]
    for node in stopped.nodes:
        node.resume()
    for held in (*lows, lease):
        await held.release()
    for waiter in waiters[:2]:
        await (await waiter).release()


# -- Calls that do not wait -----------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["stopped", "hung", "refusing"])
async def test_try_acquire_finds_the_free_slot_while_a_minority_of_nodes_has_failed(
    rig: Rig, fault: str
) -> None:
    one, other = await rig.process(), await rig.process()
    leases = [await semaphore(one, 8).acquire() for _ in range(7)]
    if fault == "stopped":
        rig.stop(0)
    elif fault == "hung":
        rig.hang(0)
    else:
        rig.refuse("LOADING Redis is loading the dataset in memory", 0)
    for _ in range(5):
        began = now()
        lease = await semaphore(other, 8).try_acquire()
        assert lease is not None
        assert now() - began < NODE_TIMEOUT
        await lease.release()
    if fault == "stopped":
        rig.start(0)
    rig.resume()
    rig.refuse(None, 0)
    for lease in leases:
        await lease.release()


async def test_try_acquire_finds_a_slot_that_only_a_minority_of_nodes_still_keeps() -> None:
    """A release under way, or a holder that was killed, leaves keys on some nodes."""
    async with Rig(5) as rig:
        process = await rig.process()
        for number in (1, 2, 4):
            rig.occupy(b"gpu#%d" % number)
        rig.occupy(b"gpu#3", on=[0, 1])
        lease = await semaphore(process, 4).try_acquire()
        assert process.redlock.stats().attempts == 2, "the first attempt asked for another slot"
        assert lease is not None
        assert lease.slot == 3
        await lease.release()


async def test_a_try_of_a_semaphore_ends_although_others_take_every_slot_that_it_finds(
    rig: Rig,
) -> None:
    process = await rig.process()
    for number in range(1, 5):
        rig.occupy(b"gpu#%d" % number)
    asked = process.questions()

    async def rival() -> None:
        while True:
            await asyncio.sleep(WAY / 4)
            if asked[-1].script.name == "inspect":
                rig.vacate(b"gpu#1")
            else:
                rig.occupy(b"gpu#1")

    call = asyncio.ensure_future(semaphore(process, 4).try_acquire())
    rivalry = asyncio.ensure_future(rival())
    assert await call is None
    rivalry.cancel()
    assert 3 <= process.redlock.stats().attempts < 10


async def test_slots_that_no_quorum_has_shown_do_not_count_as_held(rig: Rig) -> None:
    process = await rig.process()
    for number in range(1, 5):
        rig.occupy(b"gpu#%d" % number)
    call = asyncio.ensure_future(semaphore(process, 4).try_acquire())
    # The first attempt is answered, and the question for free slots is not.
    await asyncio.sleep(TRIP + WAY / 2)
    rig.hang(0, 1, 2)
    with pytest.raises(QuorumUnreachable, match="no quorum reported which slots are free"):
        await call
    rig.resume(0, 1, 2)


async def test_refused_calls_leave_no_line_behind(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_index, "_MOST_IDLE", 8)
    process = await rig.process()
    for number in range(50):
        rig.occupy(b"gpu%d#1" % number)
        assert await process.redlock.semaphore(f"gpu{number}", 1).try_acquire() is None
    lines = process.redlock.engine().lines
    assert len(lines._lines) + len(lines._others) <= 10


async def test_a_cancelled_fair_call_leaves_no_line_and_forgets_no_slot_of_others(rig: Rig) -> None:
    process = await rig.process()
    lease = await semaphore(process, 2).acquire()
    calls = [waiting(process, 2, fair=True) for _ in range(8)]
    await asyncio.sleep(WAY)
    for call in calls:
        call.cancel()
    await asyncio.sleep(0.1)
    assert taken(process) == {lease.slot}
    lines = process.redlock.engine().lines
    assert set(lines._lines) == {(b"gpu", 2)}
    await lease.release()
    assert taken(process) == set()
    alone = process.redlock.semaphore("other", 2, fair=True)
    call = asyncio.ensure_future(alone.acquire())
    await asyncio.sleep(WAY)
    call.cancel()
    await asyncio.sleep(0.1)
    assert set(lines._lines) == {(b"gpu", 2)}
    assert occupied(lines) == []


async def test_a_slot_without_expiry_gives_no_time_to_retry(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"gpu#1", math.inf)
    rig.occupy(b"gpu#2", math.inf)
    with pytest.raises(LockHeld) as refused:
        await semaphore(process, 2, blocking_timeout=0).acquire()
    assert refused.value.retry_after is None


async def test_a_call_that_ends_just_after_its_line_was_served_says_that_others_hold_the_slots(
    rig: Rig,
) -> None:
    holder, process = await rig.process(), await rig.process()
    leases = [await semaphore(holder, 2).acquire() for _ in range(2)]
    first = waiting(process, 2)
    await asyncio.sleep(0.05)
    second = waiting(process, 2, blocking_timeout=0.5)
    await asyncio.sleep(0.5 - 2 * TRIP)
    await leases[0].release()
    await first
    with pytest.raises(AcquireTimeout):
        await second
    await (await first).release()
    await leases[1].release()


async def test_a_call_that_waits_in_vain_for_its_nodes_says_so_although_its_process_has_a_slot(
    rig: Rig,
) -> None:
    process, holder = await rig.process(), await rig.process()
    leases = [await semaphore(who, 2).acquire() for who in (process, holder)]
    first = waiting(process, 2)
    await asyncio.sleep(0.1)
    rig.stop(0, 1)
    await asyncio.sleep(1.0)
    with pytest.raises(QuorumUnreachable):
        await semaphore(process, 2, blocking_timeout=1.0).acquire()
    rig.start(0, 1)
    for lease in leases:
        await lease.release()
    await (await first).release()
