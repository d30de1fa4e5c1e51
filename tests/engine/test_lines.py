"""The order of waiting tasks in one process and between processes.

The order and the lock survive tasks that leave the line.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import (
    AcquireTimeout,
    Lease,
    Lock,
    LockHeld,
    QuorumUnreachable,
    RedlockClosed,
)
from aioredlock_ng._engine.attempt.acquisition import Acquisition
from aioredlock_ng._engine.attempt.round import Round
from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
from aioredlock_ng._engine.waiting.passing_on import RUN, RUN_TRIPS
from tests.support.rig import WAY, Rig, occupied

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.rig import Process

pytestmark = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_tasks_of_one_process_are_served_in_order_of_arrival(rig: Rig) -> None:
    process = await rig.process()
    order: list[int] = []

    async def work(number: int) -> None:
        async with process.lock("a"):
            order.append(number)
            await asyncio.sleep(0.0005)

    async with process.lock("a"), asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(work(number))
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert order == []
        assert process.redlock.stats().waiting == 20
        group.create_task(_release_outer(process))
    assert order == list(range(20))


async def _release_outer(process) -> None:  # type: ignore[no-untyped-def]
    (lease,) = process.redlock.leases
    await lease.release()


async def test_one_task_per_process_sends_requests_to_the_nodes(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a", ttl=60)
    waiters = [asyncio.ensure_future(process.lock("a").acquire()) for _ in range(100)]
    await asyncio.sleep(1)
    assert process.redlock.stats().attempts <= 3
    for waiter in waiters:
        waiter.cancel()
    await asyncio.wait(waiters)
    assert process.redlock.stats().waiting == 0


async def test_a_hand_over_costs_one_round_trip(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.001)
    before = now()
    await asyncio.gather(lease.release(), waiting)
    assert now() - before < 0.0021
    assert process.redlock.stats().hand_overs == 1


async def test_a_waiter_gets_a_lock_that_another_client_deleted_within_two_round_trips(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(b"a", ttl=60)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(1)
    before = now()
    rig.vacate(b"a")
    lease = await waiting
    assert 2 * WAY - 1e-6 <= now() - before <= 4 * WAY + 1e-6
    await lease.release()


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_a_holder_that_renews_costs_a_waiter_few_commands(rig: Rig) -> None:
    holder, waiter = await rig.process(), await rig.process()
    lease = await holder.lock("a", ttl=9.0).acquire()
    waiting = asyncio.ensure_future(waiter.lock("a").acquire())
    await asyncio.sleep(4)
    asked, attempts = waiter.questions(), waiter.redlock.stats().attempts
    await asyncio.sleep(60)
    # A renewal only shows that the known remaining time is outdated.
    assert waiter.redlock.stats().attempts - attempts <= 60 / 3 + 1
    assert len(asked) <= 5 * 5 * 60 / 3
    await lease.release()
    await (await waiting).release()


@pytest.mark.parametrize("rig", [5], indirect=True)
@pytest.mark.parametrize("hung", [0, 2, 4])
async def test_a_release_wakes_a_waiter_through_any_quorum(rig: Rig, hung: int) -> None:
    holder, waiter = await rig.process(), await rig.process()
    lease = await holder.lock("a", ttl=9.0).acquire()
    waiting = asyncio.ensure_future(waiter.lock("a").acquire())
    await asyncio.sleep(8)
    rig.hang(hung)
    before = now()
    await lease.release()
    lease = await waiting
    assert now() - before < 10 * WAY
    rig.resume()
    await lease.release()


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_a_long_wait_costs_one_command_per_node_in_five_to_ten_seconds(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a", ttl=600)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(3)
    asked, attempts = process.questions(), process.redlock.stats().attempts
    await asyncio.sleep(40)
    assert 5 * 3 <= len(asked) <= 5 * 9
    assert process.redlock.stats().attempts == attempts, (
        "nobody asks for a lock that is known to be held"
    )
    rig.hang(4)
    rig.vacate(b"a", on=[0, 1])
    await asyncio.sleep(0.5)
    assert not waiting.done()
    before = now()
    rig.vacate(b"a", on=[2])
    lease = await waiting
    assert now() - before < 10 * WAY, "not by the next look"
    rig.resume()
    await lease.release()


@pytest.mark.parametrize("rig", [5], indirect=True)
@pytest.mark.parametrize("hung", [(), (1,)])
@pytest.mark.parametrize("halves", range(10))
async def test_a_waiter_cancelled_at_any_instant_after_the_key_was_freed_leaves_nothing(
    rig: Rig, hung: tuple[int, ...], halves: int
) -> None:
    process = await rig.process()
    rig.occupy(b"a", ttl=600)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(1)
    rig.vacate(b"a")
    rig.hang(*hung)
    await asyncio.sleep(halves * WAY / 2)
    waiting.cancel()
    await asyncio.wait([waiting])
    rig.resume()
    await asyncio.sleep(0.5)
    if not waiting.cancelled():
        await waiting.result().release()
        await asyncio.sleep(0.1)
    assert rig.clean
    assert not any(server.queues.members(b"a") for server in rig.servers)
    assert process.redlock.stats().waiting == 0


@pytest.mark.parametrize("leaver", [0, 1, 3])
@pytest.mark.parametrize("instant", [i * 0.0005 for i in range(14)])
async def test_a_waiter_that_leaves_at_any_instant_costs_no_other_waiter_its_place(
    rig: Rig, leaver: int, instant: float
) -> None:
    process = await rig.process()
    served: list[int] = []

    async def work(number: int) -> None:
        async with process.lock("a"):
            served.append(number)
            await asyncio.sleep(0.0005)

    tasks = [asyncio.ensure_future(work(number)) for number in range(4)]
    await asyncio.sleep(instant)
    tasks[leaver].cancel()
    await asyncio.wait(tasks)
    assert [number for number in served if number != leaver] == [n for n in range(4) if n != leaver]
    await asyncio.sleep(0.3)
    assert rig.clean
    assert process.redlock.stats().held == process.redlock.stats().waiting == 0


async def test_two_heads_that_leave_in_one_tick_cause_one_attempt_of_the_next_waiter(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(b"a", ttl=0.5)
    tasks = [asyncio.ensure_future(process.lock("a").acquire()) for _ in range(3)]
    await asyncio.sleep(0.1)
    attempts = process.redlock.stats().attempts
    rig.vacate(b"a")
    tasks[0].cancel()
    tasks[1].cancel()
    lease = await tasks[2]
    assert process.redlock.stats().attempts == attempts + 1
    await asyncio.sleep(0.01)
    assert rig.values(b"a") == [lease.token.encode()] * 3
    assert await lease.release() is True


async def test_waiters_that_time_out_in_one_tick_leave_the_line_to_the_last_waiter(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(b"a", ttl=2.0)
    short = [
        asyncio.ensure_future(process.lock("a", blocking_timeout=0.5).acquire()) for _ in range(10)
    ]
    await asyncio.sleep(0)
    patient = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.wait(short)
    assert all(isinstance(task.exception(), AcquireTimeout) for task in short)
    lease = await patient
    assert rig.values(b"a")[0] == lease.token.encode()
    assert process.redlock.stats().timeouts == 10


async def test_an_acquire_cancelled_and_repeated_at_once_makes_one_attempt_at_a_time(
    rig: Rig,
) -> None:
    process = await rig.process()
    for step in range(8):
        try:
            async with asyncio.timeout(0.0003 * step + 0.0001):
                lease = await process.lock("a").acquire()
        except TimeoutError:
            lease = await process.lock("a").acquire()
        await asyncio.sleep(0.01)
        assert rig.values(b"a") == [lease.token.encode()] * 3
        assert await lease.release() is True
        await asyncio.sleep(0.01)
        assert rig.clean


async def test_a_waiter_in_another_process_is_woken_by_the_release(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    lease = await process.lock("a", ttl=60).acquire()
    waiting = asyncio.ensure_future(other.lock("a").acquire())
    await asyncio.sleep(0.1)
    before = now()
    await lease.release()
    await waiting
    assert now() - before < 0.01


@pytest.mark.parametrize("how", ["delete", "flush", "expire"])
async def test_waiters_are_woken_however_the_other_lock_ends(rig: Rig, how: str) -> None:
    # Behind the guard, nodes that were all flushed grant nothing for a while.
    process = await rig.process(recovery_guard=None if how == "flush" else "auto")
    rig.occupy(b"a", ttl=1.0)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.5)
    before = now()
    if how == "delete":
        rig.vacate(b"a")
    elif how == "flush":
        for server in rig.servers:
            server.flush()
    await waiting
    assert now() - before < {"delete": 0.01, "flush": 0.01, "expire": 0.52}[how]


async def test_processes_in_contention_never_overlap_and_all_get_their_turn(rig: Rig) -> None:
    processes = [await rig.process(ttl=2.0) for _ in range(3)]
    inside = 0
    turns = [0] * 3

    async def work(index: int) -> None:
        nonlocal inside
        for _ in range(10):
            async with processes[index].lock("a") as lease:
                inside += 1
                assert inside == 1
                await asyncio.sleep(0.002)
                lease.check()
                inside -= 1
                turns[index] += 1

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(index) for index in range(3) for _ in range(3)))
    assert turns == [30, 30, 30]
    await asyncio.sleep(0.3)
    assert rig.clean


@pytest.mark.parametrize(
    ("way", "workers"), [(0.0002, 10), (0.001, 1), (0.005, 10), (0.04, 1), (0.04, 10)]
)
async def test_a_busy_process_leaves_the_others_their_turn_however_far_the_nodes_are(
    rig: Rig, way: float, workers: int
) -> None:
    rig.ways[:] = [way] * 3
    busy, other = await rig.process(), await rig.process()

    async def work() -> None:
        while True:
            async with busy.lock("a"):
                await asyncio.sleep(0.001)

    working = [asyncio.create_task(work()) for _ in range(workers)]
    await asyncio.sleep(1)
    for _ in range(5):
        # Two runs, a hold and the round trips to it and to us.
        async with (
            asyncio.timeout(2 * max(RUN, RUN_TRIPS * 2 * way) + 0.001 + 10 * way),
            other.lock("a"),
        ):
            pass
    for task in working:
        task.cancel()
    await asyncio.wait(working)


async def test_a_try_past_the_line_costs_the_head_neither_its_place_nor_its_token(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a", ttl=30)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.1)
    rig.disconnect(0, 1, 2)
    rig.vacate(b"a")
    rig.connect(0, 1, 2)
    tried = await process.lock("a").try_acquire()
    if tried is not None:
        await asyncio.sleep(0.05)
        await tried.release()
    async with asyncio.timeout(1):
        lease = await waiting
    await asyncio.sleep(0.3)
    assert rig.values(b"a") == [lease.token.encode()] * 3


async def test_a_lock_on_an_overlapping_set_is_woken_by_a_release_of_this_process(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a", ttl=60).acquire()
    waiting = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(0.0003)
    before = now()
    await lease.release()
    await waiting
    assert now() - before < 0.1


async def test_closing_ends_waiters_and_releases_everything(rig: Rig) -> None:
    process = await rig.process()
    await process.lock("a").acquire()
    await process.lock("b", "c").acquire()
    waiting = [asyncio.ensure_future(process.lock(name).acquire()) for name in "aab"]
    await asyncio.sleep(0.1)
    await process.redlock.aclose()
    await asyncio.wait(waiting)
    assert all(isinstance(task.exception(), RedlockClosed) for task in waiting)
    assert rig.clean
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_late_grant_that_completes_a_free_quorum_wakes() -> None:
    rig = Rig(5)
    process = await rig.process()
    rig.ways[0] = rig.ways[4] = 0.02
    process.nodes[2].disconnect()
    rig.servers[1].set(b"a", b"another's", 30.0)
    rig.servers[3].set(b"a", b"another's", 30.0)
    started = now()
    acquire = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0.01)
    assert not acquire.done(), (
        "refused by two nodes and one that is away, while two have not answered"
    )
    rig.servers[1].delete(b"a")
    rig.servers[3].delete(b"a")
    await (await acquire).release()
    assert now() - started < 0.5, (
        "the two late grants make a free quorum, without waiting for the slow look"
    )
    await process.redlock.aclose()


async def test_stats_count_the_wakeups_of_waiters_by_cause(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()

    async def woken_by(end: Callable[[], Any]) -> list[bool]:
        def counted() -> list[int]:
            stats = process.redlock.stats()
            return [stats.wakeups, stats.wakeups_expiry, stats.wakeups_fallback]

        waiting = asyncio.ensure_future(process.lock("a").acquire())
        await asyncio.sleep(0.5)
        before = counted()
        ended = end()
        if ended is not None:
            await ended
        await (await waiting).release()
        return [after > earlier for earlier, after in zip(before, counted(), strict=True)]

    lease = await other.lock("a").acquire()
    assert await woken_by(lease.release) == [True, False, False]
    rig.occupy(b"a", ttl=60.0)
    assert await woken_by(lambda: rig.vacate(b"a")) == [True, False, False]

    def notify_nobody() -> None:
        for server in rig.servers:
            server.forget_trackers()

    def vacate_unnoticed() -> None:
        notify_nobody()
        rig.vacate(b"a")

    rig.occupy(b"a", ttl=1.0)
    assert await woken_by(notify_nobody) == [False, True, False]
    rig.occupy(b"a", ttl=60.0)
    # The next request finds the key free.
    assert await woken_by(vacate_unnoticed) == [True, False, False]

    def cut_off() -> None:
        process.nodes[0].hang()
        process.nodes[1].hang()
        asyncio.get_running_loop().call_later(12, rig.resume, 0, 1)
        asyncio.get_running_loop().call_later(12, rig.vacate, b"a")

    rig.occupy(b"a", ttl=60.0)
    assert (await woken_by(cut_off))[2] is True


async def test_a_timeout_behind_a_holder_is_not_reported_as_an_unreachable_quorum(
    rig: Rig,
) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    waiting = asyncio.ensure_future(process.lock("a", blocking_timeout=0.1).acquire())
    # Its first attempt is on its way when its time is over.
    await asyncio.sleep(0.1 - WAY)
    await lease.release()
    with pytest.raises(AcquireTimeout):
        await waiting


@pytest.mark.parametrize("down", [False, True])
async def test_all_tasks_of_a_line_learn_in_the_same_instant_that_no_quorum_answered(
    rig: Rig, *, down: bool
) -> None:
    process = await rig.process()
    if down:
        rig.stop(0, 1, 2)
    else:
        rig.hang(0, 1, 2)
    options: dict[str, Any] = {"blocking_timeout": 0.5, "fail_fast": False}
    waiting = [process.lock("a", **options).acquire() for _ in range(5)]
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [QuorumUnreachable] * 5


async def test_a_waiter_behind_a_task_without_a_quorum_raises_quorum_unreachable(rig: Rig) -> None:
    process = await rig.process()
    rig.hang(0, 1, 2)
    first = asyncio.ensure_future(process.lock("a", blocking_timeout=0.2).acquire())
    second = asyncio.ensure_future(process.lock("a", blocking_timeout=0.2 + WAY).acquire())
    for waiting in (first, second):
        with pytest.raises(QuorumUnreachable):
            await waiting


async def test_locks_of_many_names_leave_no_object_behind(rig: Rig) -> None:
    process = await rig.process()

    def alive() -> int:
        gc.collect()
        return sum(
            issubclass(type(thing), (Lock, Lease, LeaseRecord, Acquisition, Round))
            for thing in gc.get_objects()
        )

    async def take(name: str) -> None:
        async with process.lock(name):
            await asyncio.sleep(0.01)

    before = alive()
    lines = process.redlock.engine().lines
    for block in range(0, 1000, 250):
        await asyncio.gather(*(take(f"{name}") for name in range(block, block + 250)))
        assert (occupied(lines), lines._others, lines._standing) == ([], {}, {})
    # Requests under way are answered by then, and the slots of their timers have run.
    await asyncio.sleep(1.0)
    assert alive() <= before


@pytest.mark.parametrize(("names", "fair"), [(("a",), True), (("a", "b"), False)])
async def test_a_call_refused_as_a_deadlock_leaves_no_line_behind(
    rig: Rig, names: tuple[str, ...], *, fair: bool
) -> None:
    process = await rig.process()
    lines = process.redlock.engine().lines
    async with process.lock("a"):
        for _ in range(2):
            with pytest.raises(LockHeld, match="this very task"):
                await process.lock(*names, fair=fair).acquire()
        assert lines._others == {}


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_a_dead_key_on_one_node_does_not_stall_competing_processes(rig: Rig) -> None:
    """The key is left by a client that was killed amid its attempt. No client will release it."""
    processes = [await rig.process() for _ in range(2)]
    rig.occupy(b"a", ttl=60.0, on=[0])
    end, holds = now() + 5, 0

    async def work(process: Process) -> None:
        nonlocal holds
        while now() < end:
            async with process.lock("a"):
                holds += 1
                await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        for process in processes:
            for _ in range(2):
                group.create_task(work(process))
    assert holds > 50


async def test_a_process_that_locks_ever_new_names_keeps_few_lines(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioredlock_ng._engine.waiting.line_index._MOST_IDLE", 10)
    process = await rig.process()
    for name in range(50):
        async with process.lock(f"{name}"):
            pass
    assert len(process.redlock.engine().lines._lines) <= 11


async def test_a_waiter_has_another_number_in_the_queues_than_the_last_waiter_of_its_name(
    rig: Rig,
) -> None:
    """A message to the waiter that left must not reach the new waiter."""
    process, other = await rig.process(), await rig.process()
    members = []
    for _ in range(2):
        async with other.lock("a"):
            waiter = asyncio.ensure_future(process.lock("a").acquire())
            await asyncio.sleep(0.05)
            members += process.redlock.engine().lines._standing
            waiter.cancel()
            await asyncio.wait([waiter])
            await asyncio.sleep(0.05)
    assert len(set(members)) == 2
