"""Semaphores: no more holders than slots, no lost slot, no lost waiter, a complete clean-up."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import (
    AcquireTimeout,
    ConfigurationError,
    Lease,
    LockHeld,
    LockLost,
    QuorumUnreachable,
)
from aioredlock_ng._core.queue_formats import SLOT_QUEUE_KEYS
from aioredlock_ng._nodes.memory import MemoryNode
from tests.support.rig import NODE_TIMEOUT, WAY, Rig, occupied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioredlock_ng import Semaphore
    from tests.support.rig import Process

pytestmark = pytest.mark.virtual_time

TRIP = 2 * WAY

QUEUE = SLOT_QUEUE_KEYS + b"gpu"


def now() -> float:
    return asyncio.get_running_loop().time()


def semaphore(process: Process, limit: int, **settings: Any) -> Semaphore:
    return process.redlock.semaphore("gpu", limit, **settings)


def waiting(process: Process, limit: int, **settings: Any) -> asyncio.Future[Lease]:
    return asyncio.ensure_future(semaphore(process, limit, **settings).acquire())


def slots_of(leases: list[Lease]) -> list[int]:
    return sorted(lease.slot for lease in leases)


def nothing_is_left(rig: Rig) -> bool:
    return (
        rig.clean
        and not any(server.queues.members(QUEUE) for server in rig.servers)
        and not any(occupied(process.redlock.engine().lines) for process in rig.processes)
        and not any(
            line.taken
            for process in rig.processes
            for line in process.redlock.engine().lines._all()
        )
    )


class Room:
    """Counts the holders inside a semaphore."""

    def __init__(self) -> None:
        self.inside: set[int] = set()
        self.most = 0
        self.visits: Counter[object] = Counter()

    async def visit(self, guest: object, semaphore: Semaphore, hold: float) -> None:
        async with semaphore as lease:
            assert lease.slot not in self.inside, "two leases have the same slot"
            self.inside.add(lease.slot)
            self.most = max(self.most, len(self.inside))
            self.visits[guest] += 1
            await asyncio.sleep(hold)
            self.inside.remove(lease.slot)


@pytest.fixture
async def processes(rig: Rig) -> AsyncIterator[list[Process]]:
    yield [await rig.process() for _ in range(4)]
    await asyncio.sleep(3 * NODE_TIMEOUT)
    assert nothing_is_left(rig)


# -- How many hold it -----------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "tasks"), [(1, 4), (2, 1), (3, 4), (8, 1), (8, 4)])
async def test_a_crowd_fills_every_slot_and_never_one_more(
    processes: list[Process], limit: int, tasks: int
) -> None:
    room, until = Room(), now() + 5.0

    async def guest(name: tuple[int, int], process: Process) -> None:
        while now() < until:
            await room.visit(name, semaphore(process, limit), 0.05)

    guests = [(at, task) for at in range(4) for task in range(tasks)]
    await asyncio.gather(*(guest(name, processes[name[0]]) for name in guests))
    assert room.most == min(limit, len(guests))
    total, fair = room.visits.total(), room.visits.total() / len(guests)
    assert total > 0.7 * min(limit, len(guests)) * 5.0 / 0.05, (
        "slots stay free while somebody waits"
    )
    assert min(room.visits[name] for name in guests) > 0.7 * fair, "nobody starves"


async def test_each_lease_has_its_own_slot_and_a_fence_above_earlier_fences_of_that_slot(
    processes: list[Process],
) -> None:
    fences: dict[int, int] = {}
    for _ in range(3):
        leases = [await semaphore(process, 4).acquire() for process in processes]
        assert slots_of(leases) == [1, 2, 3, 4]
        for lease in leases:
            assert lease.fence > fences.get(lease.slot, 0)
            fences[lease.slot] = lease.fence
            await lease.release()


async def test_one_semaphore_object_serves_many_tasks_at_once(processes: list[Process]) -> None:
    shared, inside = semaphore(processes[0], 3), []

    async def enter() -> None:
        async with shared as lease:
            inside.append(lease.slot)
            await asyncio.sleep(0.05)

    await asyncio.gather(*(enter() for _ in range(9)))
    assert Counter(inside) == {1: 3, 2: 3, 3: 3}


async def test_try_acquire_finds_every_free_slot_and_returns_none_only_without_a_free_slot(
    processes: list[Process],
) -> None:
    leases: list[Lease] = []
    for turn in range(8):
        lease = await semaphore(processes[turn % 4], 8).try_acquire()
        assert lease is not None, f"{turn} slots are held"
        leases.append(lease)
    assert slots_of(leases) == list(range(1, 9))
    assert await semaphore(processes[0], 8).try_acquire() is None
    freed = leases.pop(3)
    await freed.release()
    again = await semaphore(processes[2], 8).try_acquire()
    assert again is not None
    assert again.slot == freed.slot
    for lease in (*leases, again):
        await lease.release()


async def test_tasks_of_one_process_that_try_at_the_same_moment_try_different_slots(
    processes: list[Process],
) -> None:
    tries = [semaphore(processes[0], 4).try_acquire() for _ in range(6)]
    leases = [lease for lease in await asyncio.gather(*tries) if lease is not None]
    assert slots_of(leases) == [1, 2, 3, 4]
    for lease in leases:
        await lease.release()


async def test_a_refused_caller_learns_when_the_first_slot_expires(
    processes: list[Process],
) -> None:
    holder, other = processes[:2]
    short = await semaphore(holder, 2, ttl=3.0, auto_extend=False).acquire()
    long = await semaphore(holder, 2, ttl=9.0, auto_extend=False).acquire()
    await asyncio.sleep(1.0)
    for limit in (0, 0.5):
        with pytest.raises(
            AcquireTimeout if limit else LockHeld, match="held by others, in all 2 slots"
        ) as refused:
            await semaphore(other, 2, blocking_timeout=limit).acquire()
        assert 0.9 < refused.value.retry_after < 2.1
    for lease in (short, long):
        await lease.release()


async def test_a_waiter_that_does_not_know_when_a_slot_is_free_names_no_time(
    processes: list[Process],
) -> None:
    first, *others = processes
    leases = [await semaphore(first, 2, ttl=ttl, auto_extend=False).acquire() for ttl in (9.0, 3.0)]
    waiting = [
        asyncio.create_task(semaphore(process, 2, blocking_timeout=1.0).acquire())
        for process in others
    ]
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    last = errors[-1]
    assert isinstance(last, AcquireTimeout)
    assert last.retry_after is None or last.retry_after < 3.0
    assert ("the first slot may be free" in str(last)) is (last.retry_after is not None)
    for lease in leases:
        await lease.release()


async def test_the_message_of_a_refusal_names_the_same_time_as_retry_after(
    processes: list[Process],
) -> None:
    holder, other = processes[:2]
    leases = [
        await semaphore(holder, 4, ttl=ttl, auto_extend=False).acquire()
        for ttl in (9.0, 7.0, 3.0, 8.0)
    ]
    for limit in (0, 0.5):
        with pytest.raises(AcquireTimeout if limit else LockHeld) as refused:
            await semaphore(other, 4, blocking_timeout=limit).acquire()
        left = refused.value.retry_after
        assert left == pytest.approx(3.0 - limit, abs=0.1)
        # Each vote is about the slot that was asked last.
        ending = (
            f"; the first slot may be free in {left:.1f} s: "
            "memory-0: held; memory-1: held; memory-2: held"
        )
        assert str(refused.value).endswith(ending)
        assert all(vote.remaining is not None for vote in refused.value.votes)
    for lease in leases:
        await lease.release()


async def test_a_refused_caller_of_a_lock_learns_when_it_expires(rig: Rig) -> None:
    holder, other = await rig.process(), await rig.process()
    async with holder.lock("a", ttl=4.0):
        for limit in (0, 0.5):
            with pytest.raises(AcquireTimeout if limit else LockHeld) as refused:
                await other.lock("a", blocking_timeout=limit).acquire()
            assert refused.value.retry_after == pytest.approx(4.0 - 0.5 * bool(limit), abs=0.6)


# -- Limits ---------------------------------------------------------------------------------------


async def test_with_different_limits_there_are_never_more_holders_than_the_greatest_limit(
    processes: list[Process],
) -> None:
    room, until = Room(), now() + 3.0

    async def guest(process: Process, limit: int) -> None:
        while now() < until:
            await room.visit(limit, semaphore(process, limit), 0.02)

    limits = (2, 3, 5, 5)
    await asyncio.gather(
        *(
            guest(process, limit)
            for process, limit in zip(processes, limits, strict=True)
            for _ in range(3)
        )
    )
    assert room.most == 5
    assert set(room.visits) == {2, 3, 5}
    assert min(room.visits.values()) > 30, "a low limit does not starve"


async def test_a_slot_above_the_limit_of_the_first_waiter_goes_to_the_next_one(
    processes: list[Process],
) -> None:
    holder, low, high = processes[:3]
    leases = [await semaphore(holder, 3).acquire() for _ in range(3)]
    first = waiting(low, 2)
    await asyncio.sleep(0.1)
    second = waiting(high, 3)
    await asyncio.sleep(0.1)
    (third_slot,) = [lease for lease in leases if lease.slot == 3]
    await third_slot.release()
    async with asyncio.timeout(5 * TRIP):
        assert (await second).slot == 3
    assert not first.done()
    leases.remove(third_slot)
    for lease in (*leases, await second):
        await lease.release()
    await (await first).release()


async def test_a_lower_limit_takes_effect_as_holders_of_higher_slots_release_them(
    processes: list[Process],
) -> None:
    holder, lower = processes[:2]
    leases = sorted(
        [await semaphore(holder, 4).acquire() for _ in range(4)], key=lambda lease: lease.slot
    )
    assert await semaphore(lower, 2).try_acquire() is None
    for lease in leases[2:]:
        await lease.release()
    assert await semaphore(lower, 2).try_acquire() is None, "two of the old holders are left"
    await leases[0].release()
    own = await semaphore(lower, 2).acquire()
    assert own.slot == 1
    for lease in (leases[1], own):
        await lease.release()


@pytest.mark.parametrize("limit", [0, 1001, 2.0, True])
async def test_an_invalid_limit_is_refused_before_any_request(rig: Rig, limit: Any) -> None:
    process = await rig.process()
    with pytest.raises(ConfigurationError, match="limit must be a whole number from 1 to 1,000"):
        semaphore(process, limit)


async def test_a_semaphore_with_the_greatest_limit_gives_each_holder_its_own_slot(
    processes: list[Process],
) -> None:
    leases = [await semaphore(process, 1000).acquire() for process in processes]
    assert len({lease.slot for lease in leases}) == 4
    for lease in leases:
        await lease.release()


# -- Waiting --------------------------------------------------------------------------------------


async def test_a_waiter_gets_the_slot_that_is_released_first(processes: list[Process]) -> None:
    holder, other = processes[:2]
    for turn in range(4):
        leases = sorted(
            [await semaphore(holder, 4).acquire() for _ in range(4)], key=lambda lease: lease.slot
        )
        waiter = waiting(other, 4)
        await asyncio.sleep(0.1)
        await leases[turn].release()
        async with asyncio.timeout(3 * TRIP):
            assert (await waiter).slot == turn + 1
        for lease in (*leases, await waiter):
            await lease.release()


async def test_waiters_of_several_processes_are_served_in_order_of_arrival(
    processes: list[Process],
) -> None:
    holder, *others = processes
    leases = [await semaphore(holder, 2).acquire() for _ in range(2)]
    waiters = []
    for other in others:
        waiters.append(waiting(other, 2))
        await asyncio.sleep(0.1)
    for lease in leases:
        await lease.release()
    await asyncio.sleep(5 * TRIP)
    assert [waiter.done() for waiter in waiters] == [True, True, False]
    await (await waiters[1]).release()
    await asyncio.sleep(5 * TRIP)
    assert waiters[2].done()
    for waiter in (waiters[0], waiters[2]):
        await (await waiter).release()


async def test_slots_that_are_released_at_the_same_moment_go_to_as_many_waiters(
    processes: list[Process],
) -> None:
    """The releases may arrive in another order on each node, so the nodes offer different slots to
    one waiter.
    """
    first, second, *others = processes
    for lag in (0.0, 0.0001, 0.0005, 0.001):
        leases = [await semaphore(process, 2).acquire() for process in (first, second)]
        waiters = [waiting(process, 2) for process in others]
        await asyncio.sleep(0.1)
        for index, node in enumerate(first.nodes):
            if index % 2:
                node.hang()
        released = asyncio.ensure_future(leases[0].release())
        await asyncio.sleep(lag)
        await leases[1].release()
        for node in first.nodes:
            node.resume()
        await released
        async with asyncio.timeout(0.1):
            assert slots_of([await waiter for waiter in waiters]) == [1, 2]
        for waiter in waiters:
            await (await waiter).release()
        await asyncio.sleep(0.1)


async def test_slots_that_are_held_beyond_several_ttls_are_renewed_and_no_waiter_gets_one(
    processes: list[Process], rig: Rig
) -> None:
    first, second, other = processes[:3]
    leases = [await semaphore(process, 2, ttl=1.0).acquire() for process in (first, second)]
    waiter = waiting(other, 2)
    # The third node stores a key a moment after the quorum has granted the slot.
    await asyncio.sleep(0.1)
    keys = {lease: b"gpu#%d" % lease.slot for lease in leases}
    until = now() + 5.0
    while now() < until:
        for lease, key in keys.items():
            assert lease.valid
            assert lease.remaining() > 0.0
            assert rig.values(key) == [lease.token.encode()] * 3
        assert not waiter.done()
        await asyncio.sleep(0.03)
    for process in (first, second):
        assert process.redlock.stats().renewals >= 5
    await leases[1].release()
    async with asyncio.timeout(5 * TRIP):
        assert (await waiter).slot == leases[1].slot
    assert leases[0].valid
    for lease in (leases[0], await waiter):
        await lease.release()


async def test_a_waiter_gets_the_slot_of_a_dead_holder_when_it_expires(
    processes: list[Process],
) -> None:
    holder, other = processes[:2]
    leases = [
        await semaphore(holder, 2, ttl=ttl, auto_extend=False).acquire() for ttl in (1.0, 5.0)
    ]
    for lease in leases:
        lease.abandon()
    began = now()
    own = await semaphore(other, 2).acquire()
    assert now() - began == pytest.approx(1.0, abs=0.1)
    assert own.slot == leases[0].slot
    await own.release()
    await asyncio.sleep(5.0)


async def test_a_waiter_notices_a_slot_that_is_deleted_by_hand(
    processes: list[Process], rig: Rig
) -> None:
    holder, other = processes[:2]
    leases = [await semaphore(holder, 2).acquire() for _ in range(2)]
    waiter = waiting(other, 2)
    await asyncio.sleep(0.5)
    rig.vacate(b"gpu#2")
    async with asyncio.timeout(0.1):
        assert (await waiter).slot == 2
    await asyncio.sleep(0.1)
    assert [lease.lost for lease in leases] == [lease.slot == 2 for lease in leases]
    for lease in (*(lease for lease in leases if not lease.lost), await waiter):
        await lease.release()


async def test_a_killed_waiter_costs_the_others_nothing(processes: list[Process]) -> None:
    holder, killed, other = processes[:3]
    leases = [await semaphore(holder, 2).acquire() for _ in range(2)]
    first = waiting(killed, 2)
    await asyncio.sleep(0.1)
    second = waiting(other, 2)
    await asyncio.sleep(0.1)
    for node in killed.nodes:
        node.disconnect()
    await leases[0].release()
    async with asyncio.timeout(3 * TRIP):
        await (await second).release()
    for node in killed.nodes:
        node.connect()
    await (await first).release()
    await leases[1].release()


async def test_a_cancelled_waiter_passes_its_offers_on(processes: list[Process]) -> None:
    holder, gone, other = processes[:3]
    leases = [await semaphore(holder, 2).acquire() for _ in range(2)]
    first = waiting(gone, 2)
    await asyncio.sleep(0.1)
    second = waiting(other, 2)
    await asyncio.sleep(0.1)
    releases = [asyncio.ensure_future(lease.release()) for lease in leases]
    await asyncio.sleep(TRIP)
    first.cancel()
    async with asyncio.timeout(5 * TRIP):
        await (await second).release()
    assert first.cancelled()
    await asyncio.gather(*releases)


async def test_tasks_of_one_process_pass_a_slot_on_without_a_request(
    processes: list[Process],
) -> None:
    process, room = processes[0], Room()
    await asyncio.gather(*(room.visit(guest, semaphore(process, 2), 0.001) for guest in range(40)))
    assert room.most == 2
    assert process.redlock.stats().passed_on > 20


async def test_sixteen_slots_load_the_nodes_far_less_than_sixteen_locks(
    processes: list[Process],
) -> None:
    """With runs as short as a lock's, each slot would change its process as often as a lock."""

    async def questions(limit: int) -> int:
        room, until = Room(), now() + 2.0

        async def guest(process: Process) -> None:
            while now() < until:
                await room.visit("all", process.redlock.semaphore(f"gpu{limit}", limit), 0.005)

        asked = processes[0].questions()
        await asyncio.gather(
            *(guest(process) for process in processes[:2] for _ in range(2 * limit))
        )
        return len(asked)

    assert await questions(16) < 8 * await questions(1)


async def test_while_slots_are_scarce_a_task_behind_a_served_one_queues_without_an_attempt(
    processes: list[Process],
) -> None:
    """Its attempt would be refused, and be a third of all commands.

    The offers showed all tickets.
    """
    room, until = Room(), now() + 1.0

    async def guest(process: Process) -> None:
        while now() < until:
            await room.visit("all", semaphore(process, 2), 0.005)

    guests = [asyncio.ensure_future(guest(process)) for process in processes[:2] for _ in range(8)]
    await asyncio.sleep(0.2)
    asked = processes[0].questions()
    await asyncio.gather(*guests)
    attempts = [command for command in asked if command.script.name == "acquire_guarded"]
    in_turn = {bytes(command.args[0]) for command in attempts if command.args[4]}
    out_of_turn = {bytes(command.args[0]) for command in attempts if not command.args[4]}
    assert len(in_turn) > 20
    assert len(out_of_turn) < len(in_turn) / 10


async def test_a_process_with_many_waiters_does_not_keep_the_slots_to_itself(
    processes: list[Process],
) -> None:
    crowd, other = processes[:2]
    room, until = Room(), now() + 3.0

    async def guest(name: str, process: Process) -> None:
        while now() < until:
            await room.visit(name, semaphore(process, 2), 0.002)

    await asyncio.gather(*(guest("crowd", crowd) for _ in range(20)), guest("other", other))
    assert room.visits["other"] > 3.0 / 0.1, "it waits for one run, and not for the whole crowd"


async def test_a_crowd_that_queues_without_attempts_stands_behind_higher_tickets(
    processes: list[Process],
) -> None:
    first, second, other = processes[:3]
    room, until = Room(), now() + 4.0

    async def guest(name: str, process: Process) -> None:
        while now() < until:
            await room.visit(name, semaphore(process, 4), 0.002)

    crowds = [
        asyncio.ensure_future(guest("crowd", process))
        for process in (first, second)
        for _ in range(20)
    ]
    await asyncio.sleep(0.5)
    # It has waited for other locks, and so has a high ticket.
    other.redlock.engine().context.tickets.see(100_000)
    await asyncio.gather(*crowds, guest("other", other))
    assert room.visits["other"] > 2.5 / 0.1


async def test_fair_waiters_are_served_task_by_task(processes: list[Process]) -> None:
    order: list[int] = []
    leases = [await semaphore(processes[0], 2).acquire() for _ in range(2)]

    async def guest(number: int, process: Process) -> None:
        async with semaphore(process, 2, fair=True):
            order.append(number)
            await asyncio.sleep(0.01)

    guests = []
    for number in range(8):
        guests.append(asyncio.ensure_future(guest(number, processes[1 + number % 2])))
        await asyncio.sleep(0.05)
    for lease in leases:
        await lease.release()
    await asyncio.gather(*guests)
    assert order == sorted(order)


async def test_a_task_that_holds_all_slots_does_not_wait_for_itself(
    processes: list[Process],
) -> None:
    pair = semaphore(processes[0], 2)
    async with pair:
        async with pair:
            with pytest.raises(LockHeld, match="this very task holds it"):
                await pair.acquire()
        async with pair as again:
            assert again.slot in (1, 2), "one of two slots is no reason to refuse"


async def test_a_task_that_holds_a_lock_on_every_slot_does_not_wait_for_itself(
    processes: list[Process],
) -> None:
    async with processes[0].lock("gpu#2", "gpu#1"):
        with pytest.raises(LockHeld, match="this very task holds it"):
            await semaphore(processes[0], 2).acquire()
        async with semaphore(processes[0], 3) as third:
            assert third.slot == 3


async def test_a_task_that_holds_all_slots_in_several_ways_does_not_wait_for_itself(
    processes: list[Process],
) -> None:
    pair = semaphore(processes[0], 2)
    async with pair as first:
        left = 3 - first.slot
        async with processes[0].lock(f"gpu#{left}"):
            with pytest.raises(LockHeld, match="this very task holds it"):
                await pair.acquire()
        async with semaphore(processes[0], 3) as second:
            if second.slot == left:
                with pytest.raises(LockHeld, match="this very task holds it"):
                    await pair.acquire()
            else:
                async with pair as other:
                    assert other.slot == left


@pytest.mark.parametrize("read", [1, 2])
async def test_a_task_that_reads_a_slot_gets_the_other_slot(
    processes: list[Process], read: int
) -> None:
    async with processes[0].redlock.rwlock(f"gpu#{read}").read():
        async with semaphore(processes[0], 2) as lease:
            assert lease.slot == 3 - read
        with pytest.raises(LockHeld):
            async with semaphore(processes[0], 2):
                await semaphore(processes[0], 2).acquire()


async def test_a_lock_with_the_name_of_a_slot_and_the_slot_exclude_each_other(
    processes: list[Process],
) -> None:
    one, other = processes[:2]
    async with one.lock("gpu#1"):
        own = await semaphore(other, 2).acquire()
        assert own.slot == 2
        assert await semaphore(other, 2).try_acquire() is None
        assert await one.lock("gpu#2").try_acquire() is None
        waiter = waiting(other, 2)
        await asyncio.sleep(0.1)
    async with asyncio.timeout(5 * TRIP):
        assert (await waiter).slot == 1
    behind = asyncio.ensure_future(one.lock("gpu#1").acquire())
    await asyncio.sleep(0.1)
    await (await waiter).release()
    async with asyncio.timeout(5 * TRIP):
        await (await behind).release()
    await own.release()


# -- Faults ---------------------------------------------------------------------------------------


async def test_a_failed_minority_takes_away_no_slot(rig: Rig) -> None:
    one, other = await rig.process(), await rig.process()
    rig.stop(2)
    leases = [await semaphore(process, 4).acquire() for process in (one, other, one, other)]
    assert slots_of(leases) == [1, 2, 3, 4]
    assert await semaphore(one, 4).try_acquire() is None
    waiter = waiting(one, 4)
    await asyncio.sleep(0.3)
    await leases[1].release()
    async with asyncio.timeout(1.0):
        await (await waiter).release()
    for lease in (leases[0], *leases[2:]):
        await lease.release()
    rig.start(2)


async def test_without_a_majority_no_slot_is_granted(rig: Rig) -> None:
    process = await rig.process()
    rig.stop(1, 2)
    with pytest.raises(QuorumUnreachable):
        await semaphore(process, 4, blocking_timeout=0.5).acquire()
    with pytest.raises(QuorumUnreachable):
        await semaphore(process, 4).try_acquire()
    rig.start(1, 2)


async def test_a_hung_node_delays_no_waiter_for_long(rig: Rig) -> None:
    processes = [await rig.process() for _ in range(3)]
    rig.hang(0)
    room = Room()
    began = now()
    await asyncio.gather(
        *(room.visit(turn, semaphore(processes[turn % 3], 2), 0.01) for turn in range(30))
    )
    assert room.most == 2
    assert now() - began < 3 * 30 * 0.01 / 2


@pytest.mark.slow
@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_while_a_node_hangs_crowds_lose_no_time_to_split_offers(rig: Rig) -> None:
    """Slots are released at the same instants.

    The offers of an even number of nodes can be split in halves.
    """
    processes = [await rig.process() for _ in range(4)]
    rig.ways[:] = [0.0003] * 5
    rig.hang(4)
    room, until = Room(), now() + 2.0

    async def guest(process: Process) -> None:
        while now() < until:
            await room.visit("all", semaphore(process, 8), 0.005)

    await asyncio.gather(*(guest(process) for process in processes for _ in range(16)))
    assert room.most == 8
    assert room.visits.total() > 0.85 * 2.0 * 8 / 0.005


async def test_restarts_of_one_node_after_the_other_let_no_holder_more_in(rig: Rig) -> None:
    """Each restarted node forgets, and is quarantined until the forgotten keys have expired."""
    one, other = await rig.process(ttl=2.0, max_ttl=2.0), await rig.process(ttl=2.0, max_ttl=2.0)
    leases = [await semaphore(one, 2).acquire() for _ in range(2)]
    for server in rig.servers:
        server.restart()
        with pytest.raises(AcquireTimeout):
            await semaphore(other, 2, blocking_timeout=5.0).acquire()
        assert [lease.nodes for lease in leases] == [(3, 3), (3, 3)], "the node is repaired"
    for lease in leases:
        await lease.release()


async def test_the_loss_of_a_slot_cancels_its_holder_alone(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    pair = semaphore(process, 2)

    async def body() -> None:
        async with pair as lease:
            lost.append(lease)
            await asyncio.sleep(60.0)

    lost: list[Lease] = []
    task = asyncio.ensure_future(body())
    await asyncio.sleep(0.5)
    async with pair as other:
        rig.vacate(b"gpu#%d" % lost[0].slot)
        with pytest.raises(LockLost, match="'gpu' was lost"):
            await task
        assert other.valid


async def test_a_waiter_whose_queue_expired_is_still_served(
    processes: list[Process], rig: Rig
) -> None:
    """Redisson forgets a waiter after the entry in its queue has expired."""
    holder, other = processes[:2]
    leases = [await semaphore(holder, 2, max_hold=60.0).acquire() for _ in range(2)]
    waiter = waiting(other, 2)
    await asyncio.sleep(0.5)
    for server in rig.servers:
        server.queues.clear()
    await asyncio.sleep(25.0)
    await leases[0].release()
    async with asyncio.timeout(5 * TRIP):
        await (await waiter).release()
    await leases[1].release()


async def test_many_slots_that_become_free_at_once_soon_reach_all_waiters(
    processes: list[Process], rig: Rig
) -> None:
    """A node offers 32 slots at a time."""
    for number in range(1, 101):
        rig.occupy(b"gpu#%d" % number)
    waiters = [waiting(processes[at % 2], 100, fair=True) for at in range(100)]
    await asyncio.sleep(1.0)
    for number in range(1, 101):
        rig.vacate(b"gpu#%d" % number)
    async with asyncio.timeout(0.1):
        leases = await asyncio.gather(*waiters)
    for lease in leases:
        await lease.release()


async def test_nodes_that_send_no_messages_cost_time_and_no_slot(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryNode, "messages", False)
    processes = [await rig.process() for _ in range(2)]
    room = Room()
    await asyncio.gather(
        *(room.visit(turn, semaphore(processes[turn % 2], 2), 0.05) for turn in range(12))
    )
    assert room.most == 2


async def test_stats_name_the_semaphore_that_is_waited_for(processes: list[Process]) -> None:
    holder, other = processes[:2]
    lease = await semaphore(holder, 1).acquire()
    waiter = waiting(other, 1)
    await asyncio.sleep(0.1)
    (queued,) = other.redlock.stats().queued
    assert (queued.resource, queued.rank) == ("gpu", 0)
    await lease.release()
    await (await waiter).release()
