"""A read-write lock under odd orders of cancel, loss, renewal, downgrade and sharing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import AcquireTimeout, ConfigurationError, LockLost, QuorumUnreachable
from aioredlock_ng._core.owners import owner_key
from aioredlock_ng._core.queue_formats import OFFER
from aioredlock_ng._nodes.memory import MemoryNode
from aioredlock_ng.events import LeaseLost
from tests.engine.rwlocks import (
    KEY,
    NAME,
    now,
    only_the_last_reader_delays_a_writer,
    reading,
    rwlock,
    writing,
)
from tests.support.rig import NODE_TIMEOUT, WAY

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aioredlock_ng import Lease
    from aioredlock_ng.events import Event
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time

TRIP = 2 * WAY

GUARD = 5.0
"""Seconds of `max_ttl` where a node forgets; the node waits one more."""


async def unanswered(process: Process, renewal: Coroutine[Any, Any, None]) -> None:
    """Let the nodes execute a renewal, but let no answer arrive."""
    task = asyncio.create_task(renewal)
    await asyncio.sleep(1.5 * WAY)
    for node in process.nodes:
        node.disconnect()
    task.cancel()
    await asyncio.wait([task])


# -- A task that reads again ----------------------------------------------------------------------


async def test_a_task_reads_again_although_another_task_waits_behind_a_writer(rig: Rig) -> None:
    first, second = [await rig.process() for _ in range(2)]
    async with rwlock(first).read() as outer:
        writer = writing(second)
        await asyncio.sleep(0.1)
        other = reading(first)
        await asyncio.sleep(0.1)
        async with asyncio.timeout(1), rwlock(first).read() as inner:
            assert inner.token == outer.token
        async with asyncio.timeout(1):
            lease = await rwlock(first).read().try_acquire()
        assert lease is not None
        await lease.release()
        assert not writer.done()
        assert not other.done()
    for task in (writer, other):
        await (await task).release()


async def test_a_lease_that_reads_again_shows_the_nodes_that_renewed_its_grant(rig: Rig) -> None:
    process = await rig.process(ttl=3.0)
    lock = rwlock(process).read()
    async with lock as lease:
        await asyncio.sleep(0.5)
        rig.vacate(KEY, on=[2])
        await lease.extend()
        assert lease.nodes == (2, 3)
        async with lock as nested:
            assert nested.token == lease.token
            assert nested.nodes == (2, 3)


@pytest.mark.parametrize("ttl", [5.0, 30.0])
async def test_a_task_reads_again_with_another_ttl_while_a_writer_waits(
    rig: Rig, ttl: float
) -> None:
    first, second, third = [await rig.process() for _ in range(3)]
    async with rwlock(first).read() as outer:
        writer = writing(second)
        await asyncio.sleep(0.5)
        async with asyncio.timeout(1):
            inner = await rwlock(first, ttl=ttl).read().acquire()
        assert inner.token == outer.token
        assert inner.ttl == outer.ttl
        assert inner.remaining() <= outer.remaining()
    # Its own renewals keep the entry after the outer block.
    await asyncio.sleep(20)
    assert inner.valid
    assert not writer.done()
    assert await third.lock(NAME).try_acquire() is None
    await inner.release()
    await (await writer).release()
    assert rig.clean


async def test_a_task_reads_again_under_a_lease_that_it_extended_beyond_the_ttl_of_the_lock(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=2)
    lock = rwlock(process).read()
    async with lock as outer:
        await outer.extend(30)
        await asyncio.sleep(5)
        async with lock as inner:
            assert inner.ttl == outer.ttl
            assert inner.remaining() == outer.remaining()
            await asyncio.sleep(40)
            assert inner.valid
    assert rig.clean


# -- One grant, several leases --------------------------------------------------------------------


async def test_a_task_keeps_its_inner_lease_although_the_outer_lease_is_extended_to_a_shorter_ttl(
    rig: Rig,
) -> None:
    rig.ways[:] = [0.03] * 5
    process = await rig.process(ttl=10.0)
    lock = rwlock(process).read()
    async with lock as outer:
        await asyncio.sleep(1)
        shorter = asyncio.create_task(outer.extend(1.5))
        await asyncio.sleep(0)
        async with lock as inner:
            assert inner.remaining() <= 1.5, "some nodes may execute only the shorter ttl"
            await shorter
            await asyncio.sleep(30)
            assert inner.valid
    assert rig.clean


@pytest.mark.parametrize("before", [0.01, 0.5])
async def test_an_inner_lease_outlives_the_longest_hold_of_the_outer_lease(
    rig: Rig, before: float
) -> None:
    rig.ways[:] = [0.03] * 5
    process = await rig.process(ttl=10.0)
    lock = rwlock(process, max_hold=3.0, on_lost="flag").read()

    async def read_twice() -> None:
        async with lock as outer:
            await asyncio.sleep(outer.remaining() - before)
            inner = await rwlock(process).read().acquire()
            assert inner.token == outer.token
            await asyncio.sleep(30)
            assert outer.lost
            assert inner.valid
            await inner.release()

    with pytest.raises(LockLost, match="max_hold"):
        await read_twice()
    assert rig.clean


async def test_a_task_reads_again_under_its_lease_with_the_longest_life(rig: Rig) -> None:
    process = await rig.process(ttl=10.0)
    short = rwlock(process, auto_extend=False, on_lost="flag").read()
    lock = rwlock(process).read()
    async with short as outer, lock:
        await asyncio.sleep(outer.remaining() - 0.001)
        async with lock as inner:
            assert inner.remaining() > 5


@pytest.mark.parametrize("how", ["extend", "verify"])
async def test_all_leases_of_a_grant_learn_of_a_loss_that_one_of_them_finds(
    rig: Rig, how: str
) -> None:
    first = await rig.process()
    leases = [await rwlock(first).read().acquire() for _ in range(3)]
    assert len({lease.token for lease in leases}) == 1
    await asyncio.sleep(0.5)
    rig.vacate(KEY)
    with pytest.raises(Exception, match="no longer holds"):
        await getattr(leases[0], how)()
    await asyncio.sleep(3 * TRIP)
    assert all(lease.lost for lease in leases)


async def test_a_task_that_catches_the_loss_of_its_inner_read_lease_is_cancelled_in_the_outer_block(
    rig: Rig,
) -> None:
    lock = rwlock(await rig.process()).read()
    steps = []

    async def work() -> None:
        async with lock:
            try:
                async with lock as inner:
                    rig.vacate(KEY)
                    await inner.verify()
            except LockLost:
                steps.append("caught")
            await asyncio.sleep(1)
            steps.append("went on")

    with pytest.raises(LockLost):
        await work()
    assert steps == ["caught"]


async def test_a_lease_repairs_a_node_although_a_lease_of_the_same_grant_ended_amid_a_repair(
    rig: Rig,
) -> None:
    first = await rig.process(ttl=1.0)
    short, long = [await rwlock(first).read().acquire() for _ in range(2)]
    await asyncio.sleep(0.2)
    rig.vacate(KEY, [0])
    await short.verify()
    await short.extend()
    await asyncio.sleep(0.01)
    await short.release()
    await asyncio.sleep(1.0)
    assert rig.values(KEY)[0] is not None
    await long.release()
    assert rig.clean


async def test_the_release_of_a_grant_stays_pending_for_the_longest_ttl_of_its_leases(
    rig: Rig,
) -> None:
    first = await rig.process()
    long, short = [await rwlock(first).read().acquire() for _ in range(2)]
    await long.extend(30)
    extended_at = asyncio.get_running_loop().time()
    await long.release()
    asked = first.questions()
    await short.release()
    assert [command.script.name for command in asked] == ["release_read"] * 3
    assert all((command.owed_until or 0.0) >= extended_at + 30 for command in asked)


async def test_no_label_outlives_the_last_lease_of_a_grant(rig: Rig) -> None:
    first = await rig.process(ttl=10.0)
    long = await rwlock(first).read().acquire()
    await asyncio.sleep(0.015)
    short = await rwlock(first).read().acquire()
    assert short.token == long.token
    await asyncio.sleep(0.09)
    await long.release()
    await short.release()
    await asyncio.sleep(3 * TRIP)
    assert not any(
        key
        for server in rig.servers
        for key in server._keys
        if key.startswith(b"aioredlock_ng:owner:")
    )


@pytest.mark.parametrize("option", [{"min_hold": 1.0}, {"fair": True}], ids=["min_hold", "fair"])
async def test_a_read_write_lock_refuses_options_that_it_cannot_keep(
    rig: Rig, option: dict[str, Any]
) -> None:
    first = await rig.process()
    with pytest.raises(ConfigurationError, match=next(iter(option))):
        rwlock(first, **option)


# -- Downgrades -----------------------------------------------------------------------------------


async def test_no_writer_enters_beside_a_downgraded_lease_whose_nested_lease_was_shortened(
    rig: Rig,
) -> None:
    first, second = [await rig.process() for _ in range(2)]
    async with rwlock(first, auto_extend=False).write() as lease:
        await lease.extend(30)
        rig.disconnect(0, 1)
        await lease.downgrade()
        rig.connect(0, 1)
        await asyncio.sleep(0.5)
        inner = await rwlock(first, auto_extend=False).read().acquire()
        assert inner.token == lease.token
        await inner.extend(1)
        await inner.release()
        await asyncio.sleep(2)
        assert lease.valid
        assert await second.lock(NAME).try_acquire() is None


# -- Queues ---------------------------------------------------------------------------------------


async def test_the_next_reader_learns_of_a_foreign_release_after_the_first_reader_has_left(
    rig: Rig,
) -> None:
    processes = [await rig.process() for _ in range(3)]
    rig.occupy(KEY)
    tasks = []
    for process in processes:
        tasks.append(reading(process))
        await asyncio.sleep(0.2)
    for task in tasks[:2]:
        task.cancel()
        await asyncio.sleep(0.2)
    rig.vacate(KEY)
    async with asyncio.timeout(2 * NODE_TIMEOUT):
        await (await tasks[2]).release()


async def test_a_writer_learns_of_an_earlier_expiry_although_its_own_process_ended_the_later_one(
    rig: Rig,
) -> None:
    first, second = [await rig.process() for _ in range(2)]
    left = await rwlock(first, ttl=1.0).read().acquire()
    left.abandon()
    long = await rwlock(second).read().acquire()
    writer = writing(second)
    await asyncio.sleep(0.1)
    await long.release()
    async with asyncio.timeout(1.0 + 2 * NODE_TIMEOUT):
        await (await writer).release()


async def test_a_reader_after_a_downgrade_ignores_the_report_of_an_earlier_writer(
    rig: Rig,
) -> None:
    first, second = [await rig.process() for _ in range(2)]
    lease = await rwlock(first).read().acquire()
    writer = writing(second)
    # By then, a quorum has reported the writer to the first process.
    await asyncio.sleep(10 * WAY)
    await lease.release()
    await (await writer).release()
    lease = await rwlock(first).write().acquire()
    await lease.downgrade()
    asked = first.questions()
    await rwlock(first).read().acquire()
    assert asked[0].script.name == "acquire_read"


async def is_free_after(rig: Rig, deadline: float) -> None:
    """Check that the lock is held until this deadline, and free soon after it."""
    await asyncio.sleep(deadline - now())
    assert all(server.entries(KEY) for server in rig.servers)
    await asyncio.sleep(0.05)
    assert not any(server.entries(KEY) for server in rig.servers)


@pytest.mark.parametrize("abandoned_first", [True, False])
async def test_a_grant_without_leases_ends_at_the_deadline_of_its_abandoned_reader(
    rig: Rig, *, abandoned_first: bool
) -> None:
    process = await rig.process(ttl=2.0)
    left, other = [await rwlock(process).read().acquire() for _ in range(2)]
    if abandoned_first:
        left.abandon()
        await asyncio.sleep(1.5)
        assert left.remaining() < 1.0 < other.remaining()
    else:
        await other.extend(30.0)
    deadline = now() + left.remaining()
    await other.release()
    left.abandon()
    await is_free_after(rig, deadline)


async def test_a_grant_without_leases_ends_at_the_deadline_of_a_reader_that_may_work_on(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=2.0)
    left, other = [await rwlock(process).read().acquire() for _ in range(2)]
    await other.extend(30.0)
    deadline = now() + left.remaining()
    await other.release()
    engine = process.redlock.engine()
    engine.extender.forsake(left._record, "the loop of its caller stands still")
    await is_free_after(rig, deadline)


async def test_a_closed_manager_leaves_the_grant_of_an_abandoned_reader_to_expire(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=1.0)
    left, other = [await rwlock(process).read().acquire() for _ in range(2)]
    left.abandon()
    await other.release()
    await process.redlock.aclose()
    asked = process.questions()
    await asyncio.sleep(2.0)
    assert not asked


async def test_a_grant_whose_abandoned_reader_has_just_expired_is_released_at_the_close(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=2.0)
    left, other = [await rwlock(process).read().acquire() for _ in range(2)]
    await other.extend(30.0)
    deadline = now() + left.remaining()
    left.abandon()
    await other.release()
    # The timer that would release the grant has not fired yet.
    await asyncio.sleep(deadline - now() + 0.001)
    assert all(server.entries(KEY) for server in rig.servers)
    await process.redlock.aclose()
    assert not any(server.entries(KEY) for server in rig.servers)


# -- Nodes that forgot ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["flush", "restart"])
async def test_no_writer_enters_beside_readers_through_a_node_that_forgot_them(
    rig: Rig, how: str
) -> None:
    first, second, other = [await rig.process(max_ttl=GUARD, ttl=4.0) for _ in range(3)]
    # The processes that read reach two nodes when they acquire, and none afterwards.
    for process in (first, second):
        process.nodes[2].hang()
    readers = [
        await rwlock(process, auto_extend=False).read().acquire() for process in (first, second)
    ]
    for process in (first, second):
        for node in process.nodes[:2]:
            node.hang()
    rig.servers[0].flush() if how == "flush" else rig.servers[0].restart()
    forgot = now()
    assert [server.get(KEY) is None for server in rig.servers] == [True, False, True]
    while all(lease.valid for lease in readers):
        assert await rwlock(other).write().try_acquire() is None, (
            "two nodes have no readers, but one may have forgotten them"
        )
        await asyncio.sleep(0.05)
    assert 3.0 < now() - forgot < GUARD, "the leases ended before the node votes again"
    await asyncio.sleep(0.1)
    async with asyncio.timeout(5 * TRIP):
        await (await rwlock(other).write().acquire()).release()


async def test_a_node_restarted_empty_gets_its_readers_back_and_grants_no_writer_meanwhile(
    rig: Rig,
) -> None:
    first, second, other = [await rig.process(max_ttl=GUARD, ttl=3.0) for _ in range(3)]
    readers = [await rwlock(process).read().acquire() for process in (first, second)]
    await asyncio.sleep(0.2)
    entries = set(rig.servers[1].entries(KEY))
    assert len(entries) == 2
    writer = writing(other)
    await asyncio.sleep(0.2)
    rig.servers[1].restart()
    restarted = now()
    while not rig.servers[1].entries(KEY):
        value = rig.values(KEY)[1]
        # After the guard time the node may grant an attempt to write, which gets no quorum.
        if now() - restarted < GUARD:
            assert value is None or value.startswith(OFFER), "a node in quarantine grants nothing"
        assert all(lease.valid for lease in readers)
        assert all(set(rig.servers[index].entries(KEY)) >= entries for index in (0, 2))
        assert not writer.done()
        assert now() - restarted < GUARD + 5.0
        await asyncio.sleep(WAY / 4)
    assert now() - restarted >= GUARD
    await asyncio.sleep(3.0)
    assert set(rig.servers[1].entries(KEY)) >= entries
    assert [lease.nodes for lease in readers] == [(3, 3)] * 2
    assert not writer.done()
    await readers[0].release()
    await asyncio.sleep(0.1)
    assert not writer.done()
    await readers[1].release()
    async with asyncio.timeout(2 * NODE_TIMEOUT):
        await (await writer).release()
    await asyncio.sleep(3 * TRIP)
    assert rig.clean


async def test_a_semaphore_gets_no_slot_that_a_reader_holds(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, other, slots = [await rig.process() for _ in range(3)]
    # The process `late` gets no messages, for example because of a proxy.
    silent: set[MemoryNode] = set()
    monkeypatch.setattr(
        MemoryNode, "messages", property(lambda node: node.ready and node not in silent)
    )
    for server in rig.servers:

        def subscribe(node: Any, channel: bytes, before: Any = server.subscribe) -> None:
            if node not in silent:
                before(node, channel)

        monkeypatch.setattr(server, "subscribe", subscribe)
    late = rig.new_process()
    silent.update(late.nodes)
    await late.redlock.open()
    early = await reader.redlock.rwlock("gpu#1").read().acquire()
    slot = asyncio.create_task(slots.redlock.semaphore("gpu", 1).acquire())
    writer = asyncio.create_task(other.redlock.rwlock("gpu#1").write().acquire())
    await asyncio.sleep(0.1)
    # While its nodes are disconnected, a waiter does not know that it gets no messages.
    for node in late.nodes:
        node.disconnect()
    waiting = asyncio.create_task(late.redlock.rwlock("gpu#1").read().acquire())
    await asyncio.sleep(WAY)
    for node in late.nodes:
        node.connect()
    await asyncio.sleep(1.0)
    writer.cancel()
    await asyncio.wait([writer])
    await asyncio.sleep(1.0)
    assert not slot.done(), "a holder of the slot beside a reader"
    await early.verify()
    slot.cancel()
    await asyncio.wait([slot])
    for held in (early, await waiting):
        await held.release()


async def test_the_release_of_a_downgraded_lease_deletes_the_label_where_the_downgrade_was_missed(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=10)
    lease = await rwlock(process).write().acquire()
    await asyncio.sleep(1)
    assert rig.servers[2].get(owner_key(KEY)) is not None
    process.nodes[2].disconnect()
    await lease.downgrade()
    await lease.release()
    process.nodes[2].connect()
    await asyncio.sleep(0.5)
    assert [server.get(owner_key(KEY)) for server in rig.servers] == [None] * 3


async def writer_behind_a_reader(rig: Rig) -> tuple[Process, Lease, asyncio.Task[Lease]]:
    """Let a process read, and another one wait to write.

    Return the process that reads, its lease, and the task of the writer.
    """
    reader, other = [await rig.process() for _ in range(2)]
    early = await rwlock(reader).read().acquire()
    writer = writing(other)
    await asyncio.sleep(0.5)
    return reader, early, writer


async def test_a_reader_behind_a_writer_is_not_said_to_wait_for_a_reader_of_its_process(
    rig: Rig,
) -> None:
    reader, early, writer = await writer_behind_a_reader(rig)
    with pytest.raises(AcquireTimeout) as late:
        await rwlock(reader, blocking_timeout=1.0).read().acquire()
    assert "in this process" not in str(late.value)
    await early.release()
    await (await writer).release()


async def test_a_reader_that_waits_in_vain_for_its_nodes_says_so_beside_a_reader_of_its_process(
    rig: Rig,
) -> None:
    reader, early, writer = await writer_behind_a_reader(rig)
    first = reading(reader, blocking_timeout=4.0)
    await asyncio.sleep(0.1)
    rig.stop(0, 1)
    await asyncio.sleep(1.0)
    with pytest.raises(QuorumUnreachable):
        await rwlock(reader, blocking_timeout=1.0).read().acquire()
    rig.start(0, 1)
    await early.release()
    await (await writer).release()
    await (await first).release()


@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind a lock"])
async def test_a_downgraded_lease_is_notified_at_once_that_it_was_ended_by_force(
    rig: Rig, behind: bool
) -> None:
    process, other = [await rig.process(ttl=30) for _ in range(2)]
    held = await other.lock(NAME).acquire()
    first = asyncio.create_task(process.lock(NAME).acquire()) if behind else None
    await asyncio.sleep(0.1)
    writer = writing(process)
    await asyncio.sleep(0.1)
    await held.release()
    if first is not None:
        await (await first).release()
    lease = await writer
    await lease.downgrade()
    await asyncio.sleep(0.5)
    assert await other.redlock.force_release(NAME) == 3
    async with asyncio.timeout(2 * TRIP):
        await lease.wait_lost()
    assert lease.lost


# -- New readers after a downgrade ----------------------------------------------------------------


async def test_no_reader_shares_a_downgraded_grant_beyond_an_unconfirmed_shorter_ttl(
    rig: Rig,
) -> None:
    process, other = [await rig.process() for _ in range(2)]
    # This grant opens the time for sharing.
    await (await rwlock(process).read().acquire()).release()
    writer = await rwlock(process).write().acquire()
    await unanswered(process, writer.extend(0.5))
    downgrade = asyncio.create_task(writer.downgrade())
    await asyncio.sleep(0)
    reader = reading(process, blocking_timeout=0.1)
    async with rwlock(other).write():
        assert not writer.valid
        with pytest.raises(QuorumUnreachable):
            await reader
    await asyncio.gather(downgrade, return_exceptions=True)


@pytest.mark.parametrize("way", ["released", "max_hold", "shortened again"])
async def test_no_lease_of_a_task_that_reads_again_outlives_an_unconfirmed_shorter_ttl(
    rig: Rig, way: str
) -> None:
    process, other = await rig.process(ttl=10.0), await rig.process(ttl=10.0)
    options: dict[str, Any] = {"on_lost": "flag"}
    longest = 2.5 if way == "max_hold" else None

    async def read_twice() -> None:
        async with rwlock(process, **options, max_hold=longest).write() as outer:
            await unanswered(process, outer.extend(4.0))
            downgrade = asyncio.create_task(outer.downgrade())
            await asyncio.sleep(0)
            async with rwlock(process, **options).read() as middle:
                if way == "released":
                    await outer.release()
                elif way == "shortened again":
                    await unanswered(process, outer.extend(2.0))
                async with rwlock(process, **options).read() as inner:
                    assert inner.remaining() <= 4.0
                    await (await writing(other)).release()
                    assert not middle.valid
                    assert not inner.valid
            await asyncio.gather(downgrade, return_exceptions=True)

    with pytest.raises(LockLost):
        await read_twice()


async def test_a_lease_that_follows_an_unconfirmed_renewal_but_renews_nothing_expires(
    rig: Rig,
) -> None:
    events: list[Event] = []
    process = await rig.process(ttl=3.0, sinks=[events.append])
    with pytest.raises(LockLost):
        await read_nested(rig, process)
    causes = sorted(event.cause for event in events if isinstance(event, LeaseLost))
    assert causes == ["expired", "unrenewed"]


async def read_nested(rig: Rig, process: Process) -> None:
    """Read again without renewals, while a renewal of the outer lease is unconfirmed."""
    async with rwlock(process, on_lost="flag").read() as outer:
        await asyncio.sleep(0.5)
        rig.hang(0, 1, 2)
        await asyncio.sleep(1.0)
        inner = await rwlock(process, auto_extend=False).read().acquire()
        assert inner.token == outer.token
        await inner.wait_lost()
        await asyncio.sleep(0.1)


async def test_no_reader_shares_a_grant_while_a_shorter_ttl_is_unconfirmed(rig: Rig) -> None:
    process = await rig.process()
    lease = await rwlock(process).read().acquire()
    shorter = asyncio.create_task(lease.extend(0.5))
    await asyncio.sleep(0)
    other = await reading(process)
    assert other.token != lease.token
    await shorter
    await lease.release()
    await other.release()


async def test_a_forsaken_reader_delays_a_writer_until_its_own_deadline_only(rig: Rig) -> None:
    first, second = [await rig.process(ttl=1.0) for _ in range(2)]
    left, late = [await rwlock(first).read().acquire() for _ in range(2)]
    deadline = now() + left.remaining()
    first.redlock.engine().extender.forsake(left._record, "its holder may still work")
    await only_the_last_reader_delays_a_writer(second, deadline, late)


async def test_a_waiting_writer_keeps_new_readers_out_of_a_downgraded_grant(rig: Rig) -> None:
    process, other = [await rig.process() for _ in range(2)]
    await (await rwlock(process).read().acquire()).release()
    lease = await rwlock(process).write().acquire()
    writer = writing(other)
    await asyncio.sleep(5 * WAY)
    await lease.downgrade()
    reader = reading(process)
    await asyncio.sleep(0.05)
    assert not reader.done()
    await lease.release()
    await (await writer).release()
    await (await reader).release()
