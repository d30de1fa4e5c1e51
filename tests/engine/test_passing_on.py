"""One grant serves the tasks that waited in line when it was requested, for a bounded time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import AcquireTimeout, Lease, LockLost, LockReleased, RedlockClosed
from aioredlock_ng._core.fencing import STEP, slot_of
from tests.support.rig import WAY, Rig

if TYPE_CHECKING:
    from tests.support.rig import Process

pytestmark = pytest.mark.virtual_time

COUNTERS = slot_of(b"a")


def now() -> float:
    return asyncio.get_running_loop().time()


async def line(
    process: Process, count: int, *, held: float = 0.001, **settings: Any
) -> tuple[Lease, list[asyncio.Future[Lease]]]:
    """Return a lease that was requested while `count` other tasks waited, and their futures."""
    first = await process.lock("a").acquire()
    asked = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    behind = [asyncio.ensure_future(process.lock("a", **settings).acquire()) for _ in range(count)]
    await asyncio.sleep(held)
    _, lease = await asyncio.gather(first.release(), asked)
    return lease, behind


def passed_on(process: Process) -> int:
    return process.redlock.stats().passed_on


async def test_a_grant_is_passed_on_to_waiting_tasks_in_order_without_a_request(rig: Rig) -> None:
    process = await rig.process()
    lease, behind = await line(process, 5)
    asked, leases = process.questions(), [lease]
    for waiting in behind:
        began = now()
        assert await leases[-1].release()
        leases.append(await waiting)
        assert now() == began
        with pytest.raises(LockReleased):
            leases[-2].check()
    assert passed_on(process) == 5
    assert asked == []
    assert [one.fence for one in leases] == list(range(lease.fence or 0, (lease.fence or 0) + 6))
    assert rig.values(b"a") == [one.token.encode() for one in leases[:3]], (
        "the attempt's, whose grant it is"
    )
    assert leases[-1].nodes == (3, 3)
    await leases[-1].release()
    await asyncio.sleep(0.1)
    assert rig.clean
    assert process.redlock.stats().released == 7


async def test_a_task_that_came_after_the_attempt_makes_its_own_attempt(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    _, own = await asyncio.gather(lease.release(), waiting)
    assert own.token != lease.token
    assert passed_on(process) == 0
    await own.release()


async def test_a_successor_lease_lives_exactly_as_long_as_its_grant(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    lease, (waiting,) = await line(process, 1)
    await asyncio.sleep(0.005)
    await lease.release()
    own = await waiting
    assert passed_on(process) == 1
    assert own.remaining() == pytest.approx(1.0 - 0.01 - 0.002 - 2 * WAY - 0.005, abs=1e-6)
    await own.release()


async def test_a_successor_lease_is_renewed_and_watched_like_any_other_lease(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    lease, (waiting,) = await line(process, 1)
    await lease.release()
    own = await waiting
    assert passed_on(process) == 1
    await asyncio.sleep(5.0)
    own.check()
    rig.vacate(b"a")
    await asyncio.sleep(0.02)
    assert own.lost


@pytest.mark.parametrize(
    ("way", "ttl", "longest"),
    [
        (WAY / 10, 10.0, 0.02),
        (2 * WAY, 10.0, 0.04),
        (20 * WAY, 10.0, 0.05),
        (WAY, 0.12, 0.012),
    ],
)
async def test_a_grant_is_passed_on_for_one_run_and_a_small_share_of_the_ttl_at_most(
    rig: Rig, way: float, ttl: float, longest: float
) -> None:
    rig.ways[:] = [way] * 3
    process = await rig.process(ttl=ttl, node_timeout=0.1 if ttl > 1 else 0.02, fencing=False)
    lease, behind = await line(process, 120, held=0.1 if ttl > 1 else 0.01)
    began, runs = now() - 2 * way, []
    for waiting in behind:
        await asyncio.sleep(0.001)
        before, ends = passed_on(process), now()
        await lease.release()
        lease = await waiting
        if passed_on(process) == before:
            runs.append(ends - began)
            began = ends
    await lease.release()
    # A run is counted from the grant, a share of the ttl from the question.
    assert 0.8 * longest < max(runs) <= longest + 2 * way + 0.0011


def stop_wall_clock(*processes: Process) -> None:
    for process in processes:
        process.redlock.engine().context.wall_us = lambda: 1_700_000_000_000_000


async def fences_of(lease: Lease, behind: list[asyncio.Future[Lease]]) -> list[int]:
    fences = [lease.fence or 0]
    for waiting in behind:
        await lease.release()
        lease = await waiting
        fences.append(lease.fence or 0)
    await lease.release()
    return fences


async def test_a_grant_owns_the_fences_of_the_time_since_the_grant_before_it(rig: Rig) -> None:
    process, count = await rig.process(), 10 * STEP
    lease, behind = await line(process, count)
    fences = await fences_of(lease, behind)
    assert fences == list(range(fences[0], fences[0] + count + 1))
    assert passed_on(process) == count
    assert max(fences) < rig.servers[0].counters[COUNTERS]


async def test_a_grant_with_no_fence_left_is_not_passed_on(rig: Rig) -> None:
    process = await rig.process()
    stop_wall_clock(process)
    lease, behind = await line(process, 2 * STEP)
    fences = await fences_of(lease, behind)
    assert fences == sorted(set(fences))
    assert passed_on(process) == 2 * STEP - 2
    assert process.redlock.stats().second_rounds == 0


async def test_the_fences_of_a_grant_are_above_the_counters_of_every_node_that_granted(
    rig: Rig,
) -> None:
    process = await rig.process()
    first = await process.lock("a").acquire()
    asked = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    behind = [asyncio.ensure_future(process.lock("a").acquire()) for _ in range(3)]
    # Nodes 0 and 2 fenced a lease of another process in between. The answer of node 1 comes second.
    theirs = (first.fence or 0) + 64 * STEP
    for server in rig.servers[::2]:
        server.counters[COUNTERS] = theirs
    process.redlock.engine().context.wall_us = lambda: theirs + 64 * STEP
    await asyncio.sleep(0.002)
    _, lease = await asyncio.gather(first.release(), asked)
    assert min(await fences_of(lease, behind)) >= theirs + STEP


async def test_a_grant_that_took_a_second_round_owns_no_fence_below_its_own(rig: Rig) -> None:
    process = await rig.process()
    first = await process.lock("a").acquire()
    asked = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    behind = [asyncio.ensure_future(process.lock("a").acquire()) for _ in range(STEP - 1)]
    # One node acknowledges the proposal, two do not.
    theirs = (first.fence or 0) + 10**9 * STEP
    for server in rig.servers[1:]:
        server.counters[COUNTERS] = theirs
    await asyncio.sleep(0.002)
    _, lease = await asyncio.gather(first.release(), asked)
    fences = await fences_of(lease, behind)
    assert process.redlock.stats().second_rounds == 1
    assert fences == list(range(fences[0], fences[0] + STEP))
    assert fences[0] > theirs
    assert fences[0] % STEP == 0, "a proposal itself"


async def test_a_grant_owns_no_fence_of_an_earlier_lease_though_a_node_lost_its_counters(
    rig: Rig,
) -> None:
    process = await rig.process()
    loop = asyncio.get_running_loop()
    process.redlock.engine().context.wall_us = lambda: (
        1_700_000_000_000_000 + round(loop.time() * 1e6)
    )
    async with process.lock("a"):
        pass
    rig.disconnect(2)
    earlier = await process.lock("a").acquire()
    # The remedy for a counter beyond all clocks: delete the key with the counters of all names.
    rig.servers[0].counters.clear()
    rig.disconnect(1)
    rig.connect(2)
    asked = [asyncio.ensure_future(process.lock("a").acquire()) for _ in range(2)]
    await asyncio.sleep(0)
    await earlier.release()
    rig.vacate(b"a")
    fences = await fences_of(await asked[0], asked[1:])
    assert earlier.fence is not None
    assert earlier.fence < fences[0]


async def test_a_repair_raises_counters_to_the_value_on_the_quorum(rig: Rig) -> None:
    process = await rig.process(ttl=3.0)
    rig.disconnect(2)
    lease, (behind,) = await line(process, 1)
    rig.connect(2)
    await asyncio.sleep(2)
    stored = rig.servers[0].counters[COUNTERS]
    assert lease.fence is not None
    assert lease.fence < stored
    assert rig.values(b"a")[2] is not None
    assert rig.servers[2].counters[COUNTERS] == stored
    await lease.release()
    await (await behind).release()


async def test_without_fencing_the_number_of_successors_is_not_bounded_by_fences(rig: Rig) -> None:
    process = await rig.process(fencing=False)
    lease, behind = await line(process, 2 * STEP)
    for waiting in behind:
        await lease.release()
        lease = await waiting
    assert passed_on(process) == 2 * STEP
    assert lease.fence is None
    await lease.release()


async def test_the_next_process_has_a_greater_fence(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    # It would propose fences of the very same block.
    stop_wall_clock(process, other)
    lease, behind = await line(process, 3)
    for waiting in behind:
        await lease.release()
        lease = await waiting
    await lease.release()
    async with other.lock("a") as theirs:
        assert theirs.fence is not None
        assert lease.fence is not None
        assert theirs.fence > lease.fence


@pytest.mark.parametrize("settings", [{"ttl": 20.0}, {"ttl": 0.5}])
async def test_a_task_that_wants_another_ttl_makes_its_own_attempt(
    rig: Rig, settings: dict[str, float]
) -> None:
    process = await rig.process()
    lease, (waiting,) = await line(process, 1, **settings)
    await lease.release()
    own = await waiting
    assert passed_on(process) == 0
    assert own.ttl == settings["ttl"]
    await own.release()


async def test_max_hold_counts_from_when_the_grant_was_passed_on(rig: Rig) -> None:
    process = await rig.process()
    lease, (waiting,) = await line(process, 1, max_hold=0.5)
    await asyncio.sleep(0.005)
    began = now()
    await lease.release()
    own = await waiting
    assert passed_on(process) == 1
    await own.wait_lost()
    assert now() - began == pytest.approx(0.5, abs=1e-6)


async def test_a_grant_that_was_extended_is_not_passed_on(rig: Rig) -> None:
    process = await rig.process()
    lease, (waiting,) = await line(process, 1)
    await lease.extend(5.0)
    await lease.release()
    own = await waiting
    assert passed_on(process) == 0
    assert own.ttl == 10.0
    await own.release()


async def test_a_lease_past_its_deadline_is_not_passed_on(rig: Rig) -> None:
    process = await rig.process()
    first = await process.lock("a").acquire()
    asked = asyncio.ensure_future(process.lock("a", max_hold=0.01).acquire())
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    _, lease = await asyncio.gather(first.release(), asked)
    # Its loop stands still until its time is over.
    lease._record.unschedule()
    await asyncio.sleep(0.02)
    assert not await lease.release()
    assert lease.lost
    own = await waiting
    assert passed_on(process) == 0
    await own.release()


@pytest.mark.parametrize("already", [False, True])
async def test_a_task_cancelled_as_a_grant_is_passed_on_leaves_it_to_the_next_task(
    rig: Rig, already: bool
) -> None:
    process = await rig.process()
    lease, (cancelled, waiting) = await line(process, 2)
    if already:
        cancelled.cancel()
    if already:
        await lease.release()
    else:
        assert process.redlock.engine().extender.pass_on(lease._record)
        cancelled.cancel()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    own = await waiting
    assert process.redlock.stats().held == 1
    await own.release()
    await asyncio.sleep(0.1)
    assert rig.clean
    assert process.redlock.stats().waiting == 0


async def test_the_last_task_cancelled_as_a_grant_is_passed_on_leaves_no_key(rig: Rig) -> None:
    process = await rig.process()
    lease, (cancelled,) = await line(process, 1)
    assert process.redlock.engine().extender.pass_on(lease._record)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    await asyncio.sleep(2 * WAY)
    assert rig.clean
    assert process.redlock.stats().held == 0


async def test_a_task_that_times_out_as_a_grant_is_passed_on_leaves_nothing(rig: Rig) -> None:
    process = await rig.process()
    lease, (waiting,) = await line(process, 1, blocking_timeout=0.02)
    await asyncio.sleep(0.02 - 0.001 - 2 * WAY)
    # Its timer is due in this very tick.
    await lease.release()
    try:
        own = await waiting
    except AcquireTimeout:
        pass
    else:
        await own.release()
    await asyncio.sleep(0.1)
    assert rig.clean
    assert process.redlock.stats().waiting == process.redlock.stats().held == 0


async def test_nodes_that_answer_late_count_for_the_successor_lease(rig: Rig) -> None:
    process = await rig.process()
    rig.hang(2)
    lease, (waiting,) = await line(process, 1)
    await lease.release()
    own = await waiting
    assert passed_on(process) == 1
    assert own.nodes == (2, 3)
    rig.resume()
    await asyncio.sleep(0.01)
    assert own.nodes == (3, 3)
    await own.release()
    await asyncio.sleep(0.1)
    assert rig.clean


async def test_a_waiter_in_another_process_waits_for_one_run_and_one_hold(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    lease, behind = await line(process, 12)
    began, ended = now(), 0.0
    rival = asyncio.ensure_future(other.lock("a").acquire())
    rival.add_done_callback(lambda _: asyncio.ensure_future(rival.result().release()))
    for waiting in behind:
        await asyncio.sleep(0.01)
        await lease.release()
        lease = await waiting
        if rival.done() and not ended:
            ended = now()
    assert ended
    assert ended - began < 0.02 + 0.01 + 4 * WAY
    await lease.release()


async def test_a_waiter_for_several_names_is_overtaken_for_one_run_at_most(rig: Rig) -> None:
    process = await rig.process()
    first = await process.lock("a").acquire()
    asked = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    both = asyncio.ensure_future(process.lock("a", "b").acquire())
    await asyncio.sleep(0)
    late = [asyncio.ensure_future(process.lock("a").acquire()) for _ in range(20)]
    await asyncio.sleep(0)
    _, lease = await asyncio.gather(first.release(), asked)
    began, served = now(), [lease]
    for waiting in late:
        await asyncio.sleep(0.004)
        await served[-1].release()
        await asyncio.wait([both, waiting], return_when=asyncio.FIRST_COMPLETED)
        if both.done():
            break
        served.append(waiting.result())
    assert now() - began < 0.02 + 0.004 + 4 * WAY
    await both.result().release()
    for waiting in late[len(served) - 1 :]:
        await (await waiting).release()


async def test_a_forced_release_is_not_undone_by_a_successor_lease(rig: Rig) -> None:
    process, operator = await rig.process(ttl=1.0), await rig.process()
    lease, behind = await line(process, 5)
    for waiting in behind:
        await lease.release()
        lease = await waiting
    # As a forced release leaves one node, which the holder hears of before the others are asked.
    server, counter = rig.servers[1], rig.servers[1].counters[COUNTERS]
    await operator.redlock.force_release("a")
    assert server.counters[COUNTERS] > counter
    for index in (0, 2):
        rig.occupy(b"a", on=[index], value=lease.token.encode())
    server.counters[COUNTERS] = counter + 1
    await asyncio.sleep(2.0)
    lease.check()
    assert process.redlock.stats().repairs > 0
    assert server.get(b"a") is None
    await lease.release()


async def test_a_lease_whose_keys_may_be_gone_is_not_passed_on(rig: Rig) -> None:
    process, rival = await rig.process(), await rig.process()
    lease, (waiting,) = await line(process, 1)
    rig.vacate(b"a")
    theirs = await rival.lock("a").acquire()
    assert not await lease.release()
    assert lease.was_gone
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert passed_on(process) == 0
    await theirs.release()
    await (await waiting).release()


async def test_a_grant_with_a_deletion_reported_before_it_is_not_passed_on(rig: Rig) -> None:
    process = await rig.process()
    rig.ways[0] = WAY / 5
    first = await process.lock("a").acquire()
    asked = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    releasing = asyncio.ensure_future(first.release())
    await asyncio.sleep(1.5 * WAY / 5)
    # The nearest node has granted it, and reports the deletion before a majority has answered.
    rig.vacate(b"a", on=[0])
    lease = await asked
    await releasing
    await lease.release()
    await (await waiting).release()
    assert passed_on(process) == 0


async def test_a_grant_deleted_before_it_was_read_is_not_passed_on(rig: Rig) -> None:
    process = await rig.process()
    first = await process.lock("a").acquire()
    asked = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    releasing = asyncio.ensure_future(first.release())
    await asyncio.sleep(1.5 * WAY)
    # Granted there, and not yet read here.
    rig.vacate(b"a")
    lease = await asked
    assert not await lease.release()
    own = await waiting
    assert passed_on(process) == 0
    assert rig.values(b"a") == [own.token.encode()] * 3
    await own.release()
    await releasing


async def test_a_grant_is_not_passed_on_in_the_tick_in_which_its_tracking_was_lost(
    rig: Rig,
) -> None:
    process = await rig.process()
    lease, (waiting,) = await line(process, 1)
    process.redlock.engine().reports.invalidated(0, None)
    await lease.release()
    await (await waiting).release()
    assert passed_on(process) == 0


async def test_a_grant_released_by_force_in_its_own_process_is_not_passed_on(rig: Rig) -> None:
    process, rival = await rig.process(), await rig.process()
    lease, (waiting,) = await line(process, 1)
    await process.redlock.force_release("a")
    theirs = await rival.lock("a").acquire()
    assert not await lease.release()
    assert not waiting.done()
    await theirs.release()
    await (await waiting).release()


async def test_a_grant_is_not_passed_on_before_all_nodes_confirmed_its_forced_release(
    rig: Rig,
) -> None:
    process = await rig.process()
    for _ in range(4):
        async with process.lock("a"):
            await asyncio.sleep(0.3)
    lease, behind = await line(process, 8)
    rig.ways[2] = 0.01
    forcing = asyncio.ensure_future(process.redlock.force_release("a"))
    await asyncio.sleep(0.02 + 1.5 * WAY)
    assert sorted(value is None for value in rig.values(b"a")) == [False, True, True], (
        "the far one is about to hear of it"
    )
    before = passed_on(process)
    releasing = asyncio.ensure_future(lease.release())
    await asyncio.sleep(0)
    assert not forcing.done()
    assert passed_on(process) == before
    await forcing
    await releasing
    for waiting in behind:
        await (await waiting).release()


async def taken_while_it_is_confirmed(
    rig: Rig, process: Process, by_token: bool
) -> tuple[Lease, asyncio.Future[Lease], asyncio.Future[int]]:
    """A lease, the waiter behind it, and a forced release that began during the second fence round
    of the lease.
    """
    first = await process.lock("a").acquire()
    asked = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0)
    for server in rig.servers:
        server.counters[COUNTERS] = 2**52
    releasing = asyncio.ensure_future(first.release())
    await asyncio.sleep(1.5 * WAY)
    token = (rig.values(b"a")[0] or b"").decode() if by_token else None
    forcing = asyncio.ensure_future(process.redlock.force_release("a", token=token))
    await releasing
    lease = await asked
    assert process.redlock.stats().second_rounds == 1
    assert not forcing.done()
    return lease, waiting, forcing


@pytest.mark.parametrize("by_token", [False, True])
async def test_a_grant_taken_by_force_while_its_fence_is_confirmed_is_not_passed_on(
    rig: Rig, by_token: bool
) -> None:
    process, rival = await rig.process(), await rig.process()
    lease, waiting, forcing = await taken_while_it_is_confirmed(rig, process, by_token)
    theirs = asyncio.ensure_future(rival.lock("a").acquire())
    await asyncio.sleep(WAY)
    assert rig.values(b"a")[0] != lease.token.encode(), "deleted, and the rival has it"
    assert not await lease.release()
    assert passed_on(process) == 0
    own = await theirs
    assert not waiting.done()
    await own.release()
    await (await waiting).release()
    assert await forcing == 3


async def test_the_holder_of_a_grant_taken_by_force_before_it_was_read_is_notified_at_once(
    rig: Rig,
) -> None:
    process = await rig.process()
    lease, waiting, forcing = await taken_while_it_is_confirmed(rig, process, by_token=False)
    await asyncio.wait_for(lease.wait_lost(), 3 * WAY)
    await (await waiting).release()
    assert await forcing == 3


async def test_the_holder_of_a_grant_taken_by_force_without_a_wait_is_notified_at_once(
    rig: Rig,
) -> None:
    process = await rig.process()
    await (await process.lock("a").acquire()).release()
    for server in rig.servers:
        server.counters[COUNTERS] = 2**52
    asked = asyncio.ensure_future(process.lock("a", blocking_timeout=0).acquire())
    await asyncio.sleep(1.5 * WAY)
    forcing = asyncio.ensure_future(process.redlock.force_release("a"))
    lease = await asked
    assert process.redlock.stats().second_rounds == 1
    await asyncio.wait_for(lease.wait_lost(), 3 * WAY)
    assert await forcing == 3


async def test_a_young_lease_that_its_own_process_takes_by_force_is_lost_at_once(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    assert await process.redlock.force_release("a") == 3
    await asyncio.wait_for(lease.wait_lost(), 3 * WAY)
    assert rig.clean


async def test_only_the_body_whose_keys_were_deleted_is_notified(rig: Rig) -> None:
    process = await rig.process()
    told: list[bool] = []

    async def work(number: int) -> None:
        try:
            async with process.lock("a"):
                await asyncio.sleep(0.002)
                if number == 1:
                    rig.vacate(b"a")
                    await asyncio.sleep(2 * WAY)
        except LockLost:
            told.append(True)
        else:
            told.append(False)

    async with process.lock("a"):
        working = [asyncio.ensure_future(work(number)) for number in range(4)]
        await asyncio.sleep(0.001)
    await asyncio.gather(*working)
    assert told == [False, True, False, False]


async def test_a_grant_is_not_passed_on_where_leases_are_known_by_their_tokens(rig: Rig) -> None:
    process = await rig.process()
    process.redlock.engine().lines.passing = False
    lease, (waiting,) = await line(process, 1)
    await lease.release()
    own = await waiting
    assert own.token != lease.token
    await own.release()


async def test_closing_a_manager_passes_no_grant_on(rig: Rig) -> None:
    process = await rig.process()
    _, behind = await line(process, 3)
    counters = process.redlock.engine().context.counters
    await process.redlock.aclose()
    assert {type(error) for error in await asyncio.gather(*behind, return_exceptions=True)} == {
        RedlockClosed
    }
    assert counters.passed_on == 0
    await asyncio.sleep(0.1)
    assert rig.clean


async def test_a_grant_is_not_passed_on_with_less_than_the_min_validity_left(rig: Rig) -> None:
    process = await rig.process(ttl=1.0, node_timeout=0.005, min_validity=0.98)
    lease, (waiting,) = await line(process, 1)
    await asyncio.sleep(0.012)
    await lease.release()
    own = await waiting
    assert own.token != lease.token
    assert own.remaining() >= 0.98
    assert passed_on(process) == 0
    await own.release()


async def test_a_lease_is_not_passed_on_after_its_max_hold(rig: Rig) -> None:
    process = await rig.process()
    first = await process.lock("a").acquire()
    asked = asyncio.ensure_future(process.lock("a", max_hold=0.005).acquire())
    await asyncio.sleep(0)
    behind = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.001)
    _, lease = await asyncio.gather(first.release(), asked)
    asyncio.get_running_loop().advance(0.006)  # type: ignore[attr-defined]
    assert not await lease.release()
    assert lease.lost
    await (await behind).release()
    assert passed_on(process) == 0
