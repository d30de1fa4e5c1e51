"""A read-write lock: no reader beside a writer, turns for both sides, versions as fences, nothing
left behind.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import (
    AcquireTimeout,
    ConfigurationError,
    Lease,
    LockHeld,
    LockLost,
    UpgradeRefused,
)
from aioredlock_ng._core.readers import READER_QUEUE_KEYS
from tests.engine.rwlocks import (
    KEY,
    NAME,
    now,
    only_the_last_reader_delays_a_writer,
    reading,
    rwlock,
    writing,
)
from tests.support.rig import NODE_TIMEOUT, WAY, Rig, occupied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.rig import Process

pytestmark = pytest.mark.virtual_time

TRIP = 2 * WAY


def nothing_is_left(rig: Rig) -> bool:
    return (
        rig.clean
        and not any(server.queues.members(READER_QUEUE_KEYS + KEY) for server in rig.servers)
        and not any(occupied(process.redlock.engine().lines) for process in rig.processes)
    )


class Room:
    """Watches that no reader is beside a writer."""

    def __init__(self) -> None:
        self.readers = self.writers = self.most = self.reads = self.writes = 0

    async def read(self, process: Process, hold: float) -> Lease:
        async with rwlock(process).read() as lease:
            assert not self.writers, "a reader beside a writer"
            self.readers += 1
            self.most = max(self.most, self.readers)
            await asyncio.sleep(hold)
            self.readers -= 1
            self.reads += 1
            return lease

    async def write(self, process: Process, hold: float) -> Lease:
        async with rwlock(process).write() as lease:
            assert not self.writers, "two writers"
            assert not self.readers, "a writer beside a reader"
            self.writers += 1
            await asyncio.sleep(hold)
            self.writers -= 1
            self.writes += 1
            return lease


@pytest.fixture
async def processes(rig: Rig) -> AsyncIterator[list[Process]]:
    yield [await rig.process() for _ in range(4)]
    await asyncio.sleep(3 * NODE_TIMEOUT)
    assert nothing_is_left(rig)


# -- Who may have it at the same time -------------------------------------------------------------


async def test_readers_of_all_processes_share_the_lock(processes: list[Process]) -> None:
    room = Room()
    await asyncio.gather(*(room.read(process, 0.5) for process in processes for _ in range(3)))
    assert room.most == 12


async def test_a_writer_excludes_readers_and_other_writers(processes: list[Process]) -> None:
    room = Room()
    await asyncio.gather(
        *(room.read(process, 0.02) for process in processes for _ in range(5)),
        *(room.write(process, 0.02) for process in processes for _ in range(5)),
    )
    assert (room.reads, room.writes) == (20, 20)


async def test_an_ordinary_lock_is_a_writer(processes: list[Process]) -> None:
    first, second, *_ = processes
    async with rwlock(first).read():
        assert await second.lock(NAME).try_acquire() is None
    async with second.lock(NAME):
        assert await rwlock(first).read().try_acquire() is None
        assert await rwlock(first).write().try_acquire() is None


async def test_a_set_of_names_waits_for_readers_of_one_of_them(processes: list[Process]) -> None:
    first, second, *_ = processes
    async with rwlock(first).read():
        both = asyncio.create_task(second.lock("basket", NAME).acquire())
        await asyncio.sleep(0.3)
        assert not both.done()
    async with asyncio.timeout(1):
        await (await both).release()


# -- Turns ----------------------------------------------------------------------------------------


async def test_a_waiting_writer_keeps_new_readers_out(processes: list[Process]) -> None:
    first, second, third, _ = processes
    early = await rwlock(first).read().acquire()
    writer = writing(second)
    await asyncio.sleep(5 * TRIP)
    late = [reading(first), reading(third)]
    await asyncio.sleep(5 * TRIP)
    assert not any(task.done() for task in (writer, *late))
    await early.release()
    lease = await writer
    assert not any(task.done() for task in late)
    await lease.release()
    for task in late:
        await (await task).release()


async def test_a_writer_waits_a_hold_and_a_few_trips_among_many_readers(
    processes: list[Process],
) -> None:
    hold, stop, waited = 0.05, False, []

    async def read(process: Process) -> None:
        while not stop:
            async with rwlock(process).read():
                await asyncio.sleep(hold)

    tasks = [asyncio.create_task(read(process)) for process in processes for _ in range(10)]
    for _ in range(10):
        await asyncio.sleep(0.1)
        called = now()
        async with rwlock(processes[0]).write():
            waited.append(now() - called)
    stop = True
    await asyncio.gather(*tasks)
    assert max(waited) <= hold + 5 * TRIP


async def test_all_waiting_readers_enter_together_after_a_writer(processes: list[Process]) -> None:
    first, second, third, fourth = processes
    lease = await rwlock(first).write().acquire()
    readers, rival = [reading(second)], writing(third)
    await asyncio.sleep(5 * TRIP)
    readers += [reading(fourth), reading(first)]
    await asyncio.sleep(5 * TRIP)
    await lease.release()
    leases = await asyncio.gather(*readers)
    assert not rival.done()
    for lease in leases:
        await lease.release()
    await (await rival).release()


async def test_readers_enter_together_although_one_of_them_is_cancelled_in_the_tick_of_the_grant(
    processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third, _ = processes
    lease = await rwlock(first).write().acquire()
    one, cancelled, *others = [reading(second) for _ in range(4)]
    rival = writing(third)
    await asyncio.sleep(5 * TRIP)
    lines = second.redlock.engine().lines
    granted = lines.granted

    def cancel_one(*grant: Any) -> None:
        cancelled.cancel()
        granted(*grant)

    monkeypatch.setattr(lines, "granted", cancel_one)
    await lease.release()
    async with asyncio.timeout(5 * TRIP):
        leases = await asyncio.gather(one, *others)
    assert cancelled.cancelled()
    assert not rival.done()
    for lease in leases:
        await lease.release()
    await (await rival).release()


async def test_a_reader_with_another_ttl_enters_after_the_writer_and_keeps_no_other_reader_out(
    processes: list[Process],
) -> None:
    first, second, third, _ = processes
    lease = await rwlock(first).write().acquire()
    one, other, two = [reading(second, ttl=ttl) for ttl in (10.0, 20.0, 10.0)]
    await asyncio.sleep(5 * TRIP)
    rival = writing(third)
    await asyncio.sleep(5 * TRIP)
    await lease.release()
    async with asyncio.timeout(5 * TRIP):
        leases = await asyncio.gather(one, two)
    assert leases[0].token == leases[1].token
    await asyncio.sleep(5 * TRIP)
    assert not rival.done()
    assert not other.done()
    for lease in leases:
        await lease.release()
    lease = await rival
    assert not other.done()
    await lease.release()
    await (await other).release()


async def test_neither_side_starves_beside_the_other(processes: list[Process]) -> None:
    room, ends_at = Room(), now() + 5.0
    turns: dict[tuple[str, int], int] = {}

    async def repeat(side: str, number: int) -> None:
        process = processes[number % 4]
        while now() < ends_at:
            await (room.read if side == "read" else room.write)(process, 0.01)
            turns[side, number] = turns.get((side, number), 0) + 1

    await asyncio.gather(
        *(repeat(side, number) for side in ("read", "write") for number in range(12))
    )
    for side in ("read", "write"):
        counts = [count for (which, _), count in turns.items() if which == side]
        assert min(counts) >= 0.7 * sum(counts) / 12, (side, counts)


async def test_readers_go_on_when_the_writer_that_waits_gives_up(processes: list[Process]) -> None:
    first, second, third, _ = processes
    early = await rwlock(first).read().acquire()
    writer = writing(second, blocking_timeout=0.3)
    await asyncio.sleep(5 * TRIP)
    late = reading(third)
    with pytest.raises(AcquireTimeout):
        await writer
    async with asyncio.timeout(5 * TRIP):
        await (await late).release()
    await early.release()


async def test_readers_go_on_when_the_process_of_the_waiting_writer_has_died(rig: Rig) -> None:
    first, second, third = [await rig.process() for _ in range(3)]
    early = await rwlock(first).read().acquire()
    writer = writing(second)
    await asyncio.sleep(5 * TRIP)
    for node in second.nodes:
        node.disconnect()
    async with asyncio.timeout(1):
        await (await rwlock(third).read().acquire()).release()
    await early.release()
    writer.cancel()


# -- One grant per process ------------------------------------------------------------------------


async def test_readers_of_a_process_share_one_grant(processes: list[Process]) -> None:
    first, *_ = processes
    lease = await rwlock(first).read().acquire()
    asked = first.questions()
    more = [await rwlock(first).read().acquire() for _ in range(100)]
    assert not asked
    assert {other.token for other in more} == {lease.token}
    assert {other.fence for other in more} == {lease.fence}
    await lease.release()
    for other in more[:-1]:
        await other.release()
    assert not asked, "the grant was released while a lease of it was left"
    assert more[-1].valid
    await more[-1].verify()
    await more[-1].release()


async def test_a_shared_grant_is_kept_for_its_longest_reader(rig: Rig) -> None:
    first, second = [await rig.process(ttl=1.0) for _ in range(2)]
    short, long = await rwlock(first).read().acquire(), await rwlock(first).read().acquire()
    await short.extend(0.5)
    await asyncio.sleep(0.3)
    await short.release()
    await asyncio.sleep(3)
    assert long.valid
    assert await second.lock(NAME).try_acquire() is None
    await long.release()


async def test_an_abandoned_reader_keeps_the_grant_until_it_expires(rig: Rig) -> None:
    first, second = [await rig.process(ttl=1.0) for _ in range(2)]
    left, other = await rwlock(first).read().acquire(), await rwlock(first).read().acquire()
    left.abandon()
    await other.release()
    assert await second.lock(NAME).try_acquire() is None
    await asyncio.sleep(1.1)
    async with second.lock(NAME):
        pass


async def test_an_abandoned_reader_delays_a_writer_until_its_own_deadline_only(rig: Rig) -> None:
    first, second = [await rig.process(ttl=1.0) for _ in range(2)]
    left, early, late = [await rwlock(first).read().acquire() for _ in range(3)]
    await left.extend(2.0)
    deadline = now() + left.remaining()
    left.abandon()
    await early.release()
    await only_the_last_reader_delays_a_writer(second, deadline, late)


@pytest.mark.parametrize("before", [0.001, 0.5])
async def test_no_writer_enters_before_the_deadline_of_an_abandoned_reader(
    rig: Rig, before: float
) -> None:
    first, second = [await rig.process(ttl=1.0) for _ in range(2)]
    left, other = [await rwlock(first).read().acquire() for _ in range(2)]
    await left.extend(2.0)
    deadline = now() + left.remaining()
    left.abandon()
    await asyncio.sleep(deadline - now() - before)
    await other.release()
    await (await rwlock(second).write().acquire()).release()
    assert now() > deadline


async def test_a_task_that_reads_may_read_again_while_a_writer_waits(
    processes: list[Process],
) -> None:
    first, second, *_ = processes
    async with rwlock(first).read() as outer:
        writer = writing(second)
        await asyncio.sleep(0.5)
        async with asyncio.timeout(1), rwlock(first).read() as inner:
            assert inner.token == outer.token
            assert not writer.done()
    await (await writer).release()


@pytest.mark.parametrize("blocking_timeout", [None, 0])
async def test_a_task_that_reads_may_read_again_beside_other_readers_that_wait(
    processes: list[Process], blocking_timeout: float | None
) -> None:
    first, second, *_ = processes
    async with rwlock(first).read() as outer:
        writer = writing(second)
        await asyncio.sleep(0.5)
        behind = reading(first)
        await asyncio.sleep(0.5)
        async with (
            asyncio.timeout(1),
            rwlock(first, blocking_timeout=blocking_timeout).read() as inner,
        ):
            assert inner.token == outer.token
            assert not behind.done()
    await (await writer).release()
    await (await behind).release()


@pytest.mark.parametrize("ttl", [5.0, 30.0])
async def test_a_lease_inside_another_has_its_ttl_and_waits_for_no_writer(
    processes: list[Process], ttl: float
) -> None:
    first, second, *_ = processes
    async with rwlock(first).read() as outer:
        writer = writing(second)
        await asyncio.sleep(0.5)
        async with asyncio.timeout(1), rwlock(first, ttl=ttl).read() as inner:
            assert (inner.token, inner.ttl) == (outer.token, outer.ttl)
            await asyncio.sleep(0.5)
            await inner.verify()
    await (await writer).release()


# -- Upgrade and downgrade ------------------------------------------------------------------------


@pytest.mark.parametrize("blocking_timeout", [None, 0, 1.0])
async def test_an_upgrade_is_refused_at_once_with_the_remedy(
    processes: list[Process], blocking_timeout: float | None
) -> None:
    first, *_ = processes
    lock = rwlock(first, blocking_timeout=blocking_timeout)
    async with lock.read():
        called = now()
        with pytest.raises(UpgradeRefused, match="leave that block first"):
            await lock.write().acquire()
        with pytest.raises(UpgradeRefused, match="leave that block first"):
            await lock.write().try_acquire()
        assert now() - called <= TRIP


@pytest.mark.parametrize("down", [False, True])
async def test_a_refused_upgrade_neither_looks_for_the_holder_nor_times_out_later(
    rig: Rig, *, down: bool
) -> None:
    process = await rig.process(ttl=30.0)
    async with rwlock(process).read():
        if down:
            # The call then makes its first attempt without a line.
            rig.disconnect(0, 1, 2)
        with pytest.raises(UpgradeRefused):
            await rwlock(process, blocking_timeout=1.0, fail_fast=True).write().acquire()
        # By then, the nodes were asked to watch the keys of the reader and to label them.
        await asyncio.sleep(0.5)
        asked = process.questions()
        await asyncio.sleep(1.0)
        assert (asked, process.redlock.stats().timeouts) == ([], 0)
        rig.connect(0, 1, 2)


async def test_a_writer_that_downgrades_lets_readers_in_and_no_writer(
    processes: list[Process],
) -> None:
    first, second, third, _ = processes
    async with rwlock(first).write() as lease:
        token, fence = lease.token, lease.fence
        rival, reader = writing(second), reading(third)
        await asyncio.sleep(0.2)
        await lease.downgrade()
        assert lease.token == token
        assert fence <= lease.fence < fence + 16
        version = (await reader).fence
        assert version == lease.fence
        await asyncio.sleep(2)
        assert lease.valid
        assert not rival.done()
        await (await reader).release()
        await asyncio.sleep(0.2)
        assert not rival.done()
    winner = await rival
    assert winner.fence > version
    await winner.release()


async def test_a_downgrade_stores_the_fence_of_the_reader_on_every_node(rig: Rig) -> None:
    """Also on a node whose counter is too low, and on a node that executes the downgrade later."""
    process = await rig.process(ttl=1.0)
    lease = await rwlock(process).write().acquire()
    (slot,) = (name for name in rig.servers[0].counters if name != b"floor")
    rig.servers[1].counters[slot] -= 64
    rig.disconnect(2)
    await lease.downgrade()
    assert [server.counters[slot] for server in rig.servers[:2]] == [lease.fence] * 2
    rig.connect(2)
    await asyncio.sleep(1.0)
    assert rig.servers[2].counters[slot] == lease.fence
    await lease.release()


async def test_a_node_that_missed_the_downgrade_follows_at_the_next_renewal(rig: Rig) -> None:
    first, second = [await rig.process(ttl=1.0) for _ in range(2)]
    lease = await rwlock(first).write().acquire()
    rig.disconnect(0)
    await lease.downgrade()
    rig.connect(0)
    await asyncio.sleep(1.0)
    reader = await rwlock(second).read().acquire()
    assert reader.nodes == (3, 3) or (
        (await asyncio.sleep(TRIP)) is None and reader.nodes == (3, 3)
    )
    await lease.release()
    await reader.release()
    assert rig.clean


async def test_only_a_lease_to_write_can_be_downgraded(processes: list[Process]) -> None:
    first, *_ = processes
    async with first.lock(NAME) as lease:
        with pytest.raises(ConfigurationError, match=r"rwlock\(name\)\.write\(\)"):
            await lease.downgrade()
    async with rwlock(first).read() as lease:
        await lease.downgrade()


# -- Fences ---------------------------------------------------------------------------------------


async def test_a_reader_has_the_version_of_the_last_writer(processes: list[Process]) -> None:
    first, second, *_ = processes
    last = 0
    for _ in range(5):
        async with rwlock(first).write() as writer:
            assert writer.fence > last
        async with rwlock(second).read() as reader:
            assert reader.fence >= writer.fence
        async with rwlock(first).read() as again:
            assert again.fence == reader.fence
        last = reader.fence


async def test_readers_agree_on_a_version_although_the_nodes_do_not(rig: Rig) -> None:
    first, second = [await rig.process() for _ in range(2)]
    async with rwlock(first).write():
        pass
    await asyncio.sleep(0.1)
    counters = [server.counters for server in rig.servers]
    (slot,) = (name for name in counters[0] if name != b"floor")
    counters[1][slot] += 64
    rig.hang(2)
    leases = [await rwlock(process).read().acquire() for process in (first, second)]
    rig.resume()
    assert leases[0].fence == leases[1].fence == max(node[slot] for node in counters)
    assert first.redlock.stats().second_rounds == 1
    for lease in leases:
        await lease.release()


async def overtaken_reader(
    rig: Rig, *hung: int
) -> tuple[Process, asyncio.Task[Lease], Lease, list[int]]:
    """Let a reader confirm its fence after another reader has confirmed a higher one.

    Each node has another counter. The first reader has the answers of nodes 0 and 1 only, and then
    some nodes hang.

    Returns:
        The process and the call of the first reader, the lease of the other one, and the counters.
    """
    first, second = await rig.process(away=4), await rig.process(near=2)
    async with rwlock(first).write():
        pass
    await asyncio.sleep(0.1)
    rig.ways[2] = 1.5 * WAY
    (slot,) = (name for name in rig.servers[0].counters if name != b"floor")
    for index, server in enumerate(rig.servers):
        server.counters[slot] += 64 * (index + 1)
    marks = [server.counters[slot] | 15 for server in rig.servers]
    call = reading(first, blocking_timeout=0)
    await asyncio.sleep(8.1 * WAY)
    rig.hang(*hung)
    lease = await rwlock(second).read().acquire()
    assert lease.fence == marks[2]
    return first, call, lease, marks


async def test_a_reader_reads_beside_another_that_confirmed_a_higher_fence_first(rig: Rig) -> None:
    process, call, other, marks = await overtaken_reader(rig)
    lease = await call
    assert (lease.fence, process.redlock.stats().refused) == (marks[1], 0)
    await other.release()
    await lease.release()


async def test_a_node_that_let_a_reader_in_with_a_higher_counter_confirms_no_lower_fence(
    rig: Rig,
) -> None:
    process, call, other, marks = await overtaken_reader(rig, 1)
    lease = await call
    rig.resume()
    assert (lease.fence, process.redlock.stats().refused) == (marks[2], 1), (
        "the first attempt had one node"
    )
    await other.release()
    await lease.release()


async def test_a_node_that_lost_the_entry_before_the_second_round_confirms_no_fence(
    rig: Rig,
) -> None:
    process = await rig.process()
    async with rwlock(process).write():
        pass
    await asyncio.sleep(0.1)
    (slot,) = (name for name in rig.servers[0].counters if name != b"floor")
    rig.servers[1].counters[slot] += 64
    rig.hang(2)
    call = reading(process, blocking_timeout=0)
    # Nodes 0 and 1 have granted, and the second round is under way to them.
    await asyncio.sleep(2.5 * WAY)
    rig.vacate(KEY, [0])
    lease = await call
    assert process.redlock.stats().refused == 1, "the first attempt had one node"
    assert rig.keys() == [{KEY}, {KEY}, set()], "a second attempt has a majority"
    await lease.release()


async def test_a_late_node_with_a_lower_counter_gets_the_fence_with_the_renewal(rig: Rig) -> None:
    process = await rig.process(ttl=3.0)
    async with rwlock(process).write():
        pass
    await asyncio.sleep(0.1)
    (slot,) = (name for name in rig.servers[0].counters if name != b"floor")
    rig.servers[2].counters[slot] -= 64
    rig.ways[2] = 3 * WAY
    lease = await rwlock(process).read().acquire()
    await asyncio.sleep(4 * WAY)
    assert rig.servers[2].counters[slot] < lease.fence
    await asyncio.sleep(2)
    assert rig.servers[2].counters[slot] == lease.fence
    await lease.release()


# -- Faults ---------------------------------------------------------------------------------------


async def test_a_dead_reader_keeps_writers_out_for_its_own_ttl_only(rig: Rig) -> None:
    first, second, third = [await rig.process() for _ in range(3)]
    dead = await rwlock(first, ttl=1.0).read().acquire()
    alive = await rwlock(second, ttl=30.0).read().acquire()
    for node in first.nodes:
        node.disconnect()
    began = now()
    writer = writing(third)
    await asyncio.sleep(0.2)
    await alive.release()
    lease = await writer
    assert 0.8 <= now() - began <= 1.3
    assert not dead.valid
    await lease.release()


async def test_a_writer_enters_after_a_process_that_read_and_waited_first_has_died(
    rig: Rig,
) -> None:
    first, second, third = [await rig.process(ttl=1.0) for _ in range(3)]
    dead = await rwlock(first).read().acquire()
    queue = [writing(first)]
    await asyncio.sleep(0.1)
    gives_up = writing(second, blocking_timeout=0.3)
    await asyncio.sleep(0.1)
    last = writing(third)
    with pytest.raises(AcquireTimeout):
        await gives_up
    for node in first.nodes:
        node.disconnect()
    async with asyncio.timeout(2):
        await (await last).release()
    assert not dead.valid
    for task in queue:
        task.cancel()


async def test_a_reader_is_notified_that_its_lease_was_ended_by_force(
    processes: list[Process],
) -> None:
    first, second, *_ = processes
    lease = await rwlock(first).read().acquire()
    await asyncio.sleep(0.5)
    assert await second.redlock.force_release(NAME) == 3
    async with asyncio.timeout(0.1):
        await lease.wait_lost()
    with pytest.raises(LockLost):
        lease.check()


async def test_force_release_ends_all_readers_while_a_node_is_silent(
    rig: Rig, processes: list[Process]
) -> None:
    first, second, third, *_ = processes
    # The first reader is on a bare majority.
    rig.refuse("BUSY", 2)
    lease = await rwlock(first, ttl=30.0).read().acquire()
    rig.refuse(None, 2)
    rig.servers[2].remove_entry(KEY, lease.token.encode(), None)
    other = await rwlock(second, ttl=30.0).read().acquire()
    assert [len(server.entries(KEY)) for server in rig.servers] == [2, 2, 1]
    rig.hang(1)
    assert await third.redlock.force_release(NAME) >= 2
    rig.resume(1)
    await asyncio.sleep(1)
    assert lease.lost
    assert other.lost


async def test_one_hung_node_costs_readers_and_writers_nothing(rig: Rig) -> None:
    processes = [await rig.process() for _ in range(2)]
    rig.hang(1)
    room, began = Room(), now()
    for _ in range(5):
        await room.read(processes[0], 0.0)
        await room.write(processes[1], 0.0)
    assert now() - began <= 10 * 4 * TRIP
    rig.resume()


async def test_a_cancelled_reader_leaves_nothing_behind(processes: list[Process]) -> None:
    first, second, *_ = processes
    for wait in (0.0, WAY / 2, WAY, 1.5 * WAY, TRIP, 3 * TRIP):
        task = reading(first)
        await asyncio.sleep(wait)
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, Lease):
            await outcome.release()
        await asyncio.sleep(2 * TRIP)
        async with asyncio.timeout(TRIP * 2.5), second.lock(NAME):
            pass
    lease = await second.lock(NAME).acquire()
    for wait in (0.0, WAY, TRIP, 3 * TRIP):
        task = reading(first)
        await asyncio.sleep(wait)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await lease.release()


async def test_the_state_of_a_read_write_lock_is_shown(processes: list[Process]) -> None:
    first, second, third, _ = processes
    leases = [
        await rwlock(process, owner="a reader").read().acquire() for process in (first, second)
    ]
    await asyncio.sleep(0.2)
    waiter = writing(third)
    await asyncio.sleep(0.1)
    info = await third.redlock.inspect(NAME)
    assert info.held
    assert info.token is None
    assert {reader.token for reader in info.readers} == {lease.token for lease in leases}
    assert [reader.owner.label for reader in info.readers if reader.owner] == ["a reader"] * 2
    assert info.waiting == 1
    with pytest.raises(LockHeld, match="a reader and 1 more reader"):
        await third.lock(NAME, blocking_timeout=0).acquire()
    for lease in leases:
        await lease.release()
    await (await waiter).release()


async def test_a_reader_never_shares_a_grant_that_ends_before_it_could_be_renewed(rig: Rig) -> None:
    process = await rig.process()
    catalog = process.redlock.rwlock("catalog", ttl=0.6)
    old = await process.redlock.rwlock("catalog", ttl=0.6, auto_extend=False).read().acquire()
    await asyncio.sleep(0.52)
    # Its grant is new, so that for a while further readers ask no node.
    await (await catalog.read().acquire()).release()
    async with catalog.read() as lease:
        await asyncio.sleep(1.0)
        lease.check()
    assert old.lost


async def test_a_reader_that_shared_a_grant_is_told_that_its_deadline_has_passed(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    readers = [await rwlock(process).read().acquire() for _ in range(2)]
    assert readers[0].token == readers[1].token
    asyncio.get_running_loop().advance(5.0)  # type: ignore[attr-defined]
    assert not await readers[0].release()
    assert readers[0].lost
    assert not await readers[1].release()
