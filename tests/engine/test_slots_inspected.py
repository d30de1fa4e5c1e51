"""`Semaphore.inspect` shows each slot, its holder and the waiters in one round of reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import QuorumUnreachable, RedlockClosed
from aioredlock_ng._core.inspection import semaphore_info
from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.replies import Free, Held, Looked, NotALock
from tests.support.rig import WAY

if TYPE_CHECKING:
    from aioredlock_ng import Lease, Redlock
    from aioredlock_ng._core.replies import KeyLook
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time

TRIP = 2 * WAY


def now() -> float:
    return asyncio.get_running_loop().time()


def waiting(redlock: Redlock, limit: int, **settings: bool) -> asyncio.Future[Lease]:
    return asyncio.ensure_future(redlock.semaphore("gpu", limit, **settings).acquire())


async def test_inspect_shows_the_holder_of_each_slot_in_one_round(rig: Rig) -> None:
    holder, other = await rig.process(), await rig.process()
    lease = await holder.redlock.semaphore("gpu", 4, owner="the nightly import").acquire()
    await asyncio.sleep(0.5)
    keys, began = rig.keys(), now()
    asked = other.questions()
    info = await other.redlock.semaphore("gpu", 4).inspect()
    assert now() - began == pytest.approx(TRIP, abs=WAY)
    assert len(asked) == 3
    assert rig.keys() == keys, "nothing is written"
    assert (info.resource, info.limit, info.held, info.waiting) == ("gpu", 4, 1, 0)
    assert [slot.resource for slot in info.slots] == ["gpu#1", "gpu#2", "gpu#3", "gpu#4"]
    assert [slot.held for slot in info.slots] == [number == lease.slot for number in range(1, 5)]
    held = info.slots[lease.slot - 1]
    assert (held.token, held.nodes, held.total) == (lease.token, 3, 3)
    assert held.remaining == pytest.approx(lease.remaining(), abs=0.2)
    assert held.owner is not None
    assert (held.owner.label, held.owner.fence) == ("the nightly import", lease.fence)
    await lease.release()


async def test_inspect_counts_each_waiter_for_the_semaphore_once(rig: Rig) -> None:
    """A task with `fair` counts by itself. A task that wants a slot as a lock does not count."""
    holder, one, other, fair = [await rig.process() for _ in range(4)]
    semaphore = holder.redlock.semaphore("gpu", 3)
    leases = [await semaphore.acquire() for _ in range(3)]
    waiters = [waiting(one.redlock, 3), waiting(one.redlock, 3), waiting(other.redlock, 2)]
    waiters += [waiting(fair.redlock, 3, fair=True) for _ in range(2)]
    waiters.append(asyncio.ensure_future(other.lock("gpu#2").acquire()))
    await asyncio.sleep(0.1)
    info = await semaphore.inspect()
    assert info.waiting == 4
    assert [slot.waiting for slot in info.slots] == [4, 5, 4], (
        "each slot counts those who wait for any"
    )
    for waiter in waiters:
        waiter.cancel()
    await asyncio.wait(waiters)
    await asyncio.sleep(0.1)
    assert (await semaphore.inspect()).waiting == 0
    for lease in leases:
        await lease.release()


@pytest.mark.parametrize(
    ("slots", "waiting"),
    [
        ([Held(1.0, b"t", waiting=2), Free(waiting=2)], 2),
        ([Held(1.0, b"t", waiting=2), Free(0.1, 3)], 3),
        ([Free(0.1, 1), Free(0.1, 1)], 2),
        ([Free(0.1, 3), Free(0.1, 3), Held(1.0, b"t", waiting=5)], 4),
        ([NotALock("hash", 1.0), Held(1.0, b"t", waiting=2)], 2),
        ([NotALock("hash", 1.0)], None),
        ([Held(1.0, b"t"), Free()], None),
    ],
)
def test_a_client_that_is_offered_a_slot_still_counts_as_waiting(
    slots: list[KeyLook], waiting: int | None
) -> None:
    info = semaphore_info("gpu", ["a"], [Looked(tuple(slots))], len(slots))
    assert info.waiting == waiting


async def test_a_minority_that_is_silent_changes_nothing_and_a_majority_is_needed(rig: Rig) -> None:
    holder, other = await rig.process(), await rig.process()
    lease = await holder.redlock.semaphore("gpu", 2).acquire()
    semaphore = other.redlock.semaphore("gpu", 2)
    await asyncio.sleep(0.1)
    rig.hang(2)
    info = await semaphore.inspect()
    assert (info.held, info.waiting) == (1, 0)
    assert [slot.answers[2].detail for slot in info.slots] == ["no answer in time"] * 2
    rig.hang(1)
    with pytest.raises(QuorumUnreachable, match="no quorum answered") as refused:
        await semaphore.inspect()
    assert refused.value.resource == "gpu"
    assert lease.token not in str(refused.value)
    rig.resume()
    await lease.release()


async def test_a_manager_without_labels_reads_no_label_and_shows_the_holders(rig: Rig) -> None:
    holder = await rig.process()
    lease = await holder.redlock.semaphore("gpu", 2).acquire()
    await asyncio.sleep(0.5)
    assert rig.values(owner_key(b"gpu#%d" % lease.slot))[0] is not None
    quiet = await rig.process(owner=False)
    info = await quiet.redlock.semaphore("gpu", 2).inspect()
    assert (info.held, info.slots[lease.slot - 1].owner) == (1, None)
    await lease.release()


@pytest.mark.slow
async def test_a_thousand_slots_are_inspected_at_once(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    semaphore = process.redlock.semaphore("gpu", 1000)
    leases = await asyncio.gather(*(semaphore.acquire() for _ in range(1000)))
    waiter = waiting(other.redlock, 1000)
    await asyncio.sleep(0.5)
    began = now()
    info = await semaphore.inspect()
    assert now() - began == pytest.approx(TRIP, abs=WAY)
    assert (info.held, info.waiting, len(info.slots)) == (1000, 1, 1000)
    tokens = {lease.slot: lease.token for lease in leases}
    assert [slot.token for slot in info.slots] == [tokens[number] for number in range(1, 1001)]
    waiter.cancel()
    await asyncio.wait([waiter])
    await asyncio.gather(*(lease.release() for lease in leases))


async def test_inspect_of_a_manager_that_is_not_open_raises_redlock_closed(rig: Rig) -> None:
    process = rig.new_process()
    with pytest.raises(RedlockClosed):
        await process.redlock.semaphore("gpu", 2).inspect()
