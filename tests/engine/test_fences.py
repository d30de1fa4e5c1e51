"""Fencing tokens: each token is greater than every earlier token, whatever the clocks show."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioredlock_ng import AcquireTimeout, LockHeld, QuorumUnreachable
from aioredlock_ng._core.fencing import (
    BLOCK,
    LATEST_US,
    SLOTS,
    STEP,
    FenceClock,
    first_of,
    following,
    mark_of,
    slot_of,
)
from aioredlock_ng.events import NodeDegraded
from tests.support.rig import WAY

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time


def clock(ahead: float = 0.0) -> Any:
    """A wall clock that runs with the loop's time."""
    loop = asyncio.get_running_loop()
    return lambda: 1_700_000_000 + loop.time() + ahead


async def test_each_lease_has_a_greater_fence_than_the_one_before(rig: Rig) -> None:
    one, other = await rig.process(wall_clock=clock()), await rig.process(wall_clock=clock())
    fences = []
    for process in (one, other) * 5:
        async with process.lock("a") as lease:
            fences.append(lease.fence)
    assert fences == sorted(set(fences))
    assert one.redlock.stats().second_rounds + other.redlock.stats().second_rounds == 0, (
        "clocks agree: one round"
    )


async def test_fences_are_ordered_though_a_clock_is_far_behind(rig: Rig) -> None:
    fast, slow = await rig.process(wall_clock=clock(3600)), await rig.process(wall_clock=clock())
    fences = []
    for process in (fast, slow) * 100:
        async with process.lock("a") as lease:
            fences.append(lease.fence)
    assert fences == sorted(set(fences))
    assert slow.redlock.stats().second_rounds <= 2, "learned from the first times"


async def test_a_clock_that_jumps_back_changes_no_order(rig: Rig) -> None:
    times = iter([2e9, 1e9, 1.5e9, 1e9, 3e9, 1e9, 1e9])
    process = await rig.process(wall_clock=lambda: next(times))
    fences = []
    for _ in range(5):
        async with process.lock("a") as lease:
            fences.append(lease.fence)
    assert fences == sorted(set(fences))


async def in_the_second_round(
    rig: Rig, blocking_timeout: float | None = 0.0
) -> asyncio.Future[Lease]:
    """Return a granted acquisition in its second round, with counters ahead of its clock."""
    process = await rig.process(wall_clock=clock())
    for server in rig.servers:
        server.counters[slot_of(b"a")] = 2**52
    acquiring = asyncio.ensure_future(
        process.lock("a", blocking_timeout=blocking_timeout).acquire()
    )
    await asyncio.sleep(2.5 * WAY)
    assert process.redlock.stats().second_rounds == 1
    return acquiring


async def test_a_second_round_that_is_not_acknowledged_fails_the_attempt(rig: Rig) -> None:
    process = await rig.process(wall_clock=clock())
    for server in rig.servers:
        server.counters[slot_of(b"a")] = 2**52
    execute = [server.execute for server in rig.servers]

    def overtaken(command: Any, by: Any) -> Any:
        if command.script.name == "confirm":
            by.server.counters[slot_of(b"a")] += 10_000_000
        return type(by.server).execute(by.server, command, by)

    for server in rig.servers:
        server.execute = overtaken  # type: ignore[method-assign]
    with pytest.raises(LockHeld):
        await process.lock("a", blocking_timeout=0).acquire()
    await asyncio.sleep(0.1)
    assert rig.clean
    for server, usual in zip(rig.servers, execute, strict=True):
        server.execute = usual  # type: ignore[method-assign]
    async with process.lock("a") as lease:
        assert lease.fence is not None
        assert lease.fence > 2**52


@pytest.mark.parametrize(
    ("ends", "hung"),
    [("hang", (0, 1, 2)), ("hang", (0, 2)), ("cut", (0, 2)), ("refuse", (0, 1, 2))],
)
async def test_a_second_round_without_answers_leaves_no_key(
    rig: Rig, hung: tuple[int, ...], ends: str
) -> None:
    acquiring = await in_the_second_round(rig)
    if ends == "hang":
        rig.hang(*hung)
    elif ends == "cut":
        rig.disconnect(*hung)
    else:
        rig.refuse("LOADING Redis is loading the dataset in memory", *hung)
    # Not "held": there is no holder, and no quorum could be asked.
    with pytest.raises(QuorumUnreachable):
        await acquiring
    assert rig.processes[0].redlock.stats().second_rounds == 1
    if ends == "cut":
        rig.connect(*hung)
    rig.resume()
    rig.refuse(None, *hung)
    await asyncio.sleep(0.1)
    assert rig.clean


async def held_beside_a_second_round(
    rig: Rig, blocking_timeout: float | None
) -> asyncio.Future[Lease]:
    """One node says held, one acknowledges the fence, one hangs after its grant: a well majority,
    and a holder.
    """
    rig.ways[2] = 2 * WAY
    rig.occupy(b"a", on=[2])
    acquiring = await in_the_second_round(rig, blocking_timeout)
    rig.hang(0)
    return acquiring


async def test_a_second_round_without_quorum_reports_a_held_lock_if_a_node_answered_held(
    rig: Rig,
) -> None:
    with pytest.raises(LockHeld) as caught:
        await (await held_beside_a_second_round(rig, 0.0))
    assert [vote.outcome for vote in caught.value.votes] == ["unknown", "granted", "held"]
    assert caught.value.votes[0].detail == "no answer in time"


async def test_a_waiter_whose_second_round_finds_a_holder_waits_as_for_any_holder(rig: Rig) -> None:
    acquiring = await held_beside_a_second_round(rig, 1.0)
    stats = rig.processes[0].redlock.stats
    await asyncio.sleep(0.5)
    assert stats().unreachable == 0
    assert stats().attempts == 1, "it sleeps until a node notifies"
    with pytest.raises(AcquireTimeout):
        await acquiring


async def test_a_waiter_wakes_when_the_node_that_hung_in_its_second_round_answers(rig: Rig) -> None:
    acquiring = await held_beside_a_second_round(rig, None)
    await asyncio.sleep(0.5)
    rig.resume(0)
    async with asyncio.timeout(0.02):
        lease = await acquiring
    await lease.release()


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_nodes_that_hang_after_their_grant_leave_the_second_round_to_late_nodes(
    rig: Rig,
) -> None:
    rig.ways[3:] = [2 * WAY] * 2
    acquiring = await in_the_second_round(rig)
    rig.hang(0, 1)
    lease = await acquiring
    assert lease.fence is not None
    assert lease.fence > 2**52
    rig.resume()
    assert await lease.release() is True
    await asyncio.sleep(0.1)
    assert rig.clean


async def test_an_acquire_cancelled_in_the_second_round_leaves_no_key(rig: Rig) -> None:
    acquiring = await in_the_second_round(rig, blocking_timeout=None)
    assert not acquiring.done()
    acquiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring
    await asyncio.sleep(0.1)
    assert rig.clean


async def test_several_resources_have_one_fence_above_all_their_counters(rig: Rig) -> None:
    ahead, process = await rig.process(wall_clock=clock(100)), await rig.process(wall_clock=clock())
    async with ahead.lock("b") as lease:
        of_b = lease.fence
    async with process.lock("a", "b") as both:
        assert both.fence > of_b  # type: ignore[operator]
    async with process.lock("a") as alone:
        assert alone.fence > both.fence  # type: ignore[operator]


BEYOND = [LATEST_US + 1, 2**53, 2**60, 10**18]


@pytest.mark.parametrize("counter", BEYOND)
async def test_a_counter_beyond_all_clocks_does_not_spread_and_stops_no_acquisition(
    rig: Rig, counter: int
) -> None:
    fast, process = await rig.process(wall_clock=clock(3600)), await rig.process(wall_clock=clock())
    slot = slot_of(b"a")
    rig.servers[0].counters[slot] = counter
    fences = []
    for one in (fast, process) * 10:
        async with one.lock("a") as lease:
            fences.append(lease.fence or 0)
    assert fences == sorted(set(fences))
    assert max(fences) < LATEST_US
    await asyncio.sleep(0.1)
    assert [server.counters[slot] for server in rig.servers[1:]] == [max(fences)] * 2
    assert rig.servers[0].counters[slot] == counter
    assert rig.clean, "released there too, where the key had been set"


@pytest.mark.parametrize("counter", BEYOND)
async def test_counters_beyond_all_clocks_on_a_majority_are_an_error_that_names_the_remedy(
    rig: Rig, counter: int
) -> None:
    process = await rig.process(wall_clock=clock())
    for server in rig.servers[:2]:
        server.counters[slot_of(b"a")] = counter
    with pytest.raises(QuorumUnreachable, match="delete its key aioredlock_ng:fences") as caught:
        await process.lock("a").acquire()
    assert [vote.outcome for vote in caught.value.votes[:2]] == ["failed", "failed"]
    assert str(counter) not in str(caught.value)
    await asyncio.sleep(0.1)
    assert rig.clean


async def test_a_node_whose_counter_is_beyond_all_clocks_is_logged_once(rig: Rig) -> None:
    events: list[Any] = []
    process = await rig.process(wall_clock=clock(), sinks=[events.append])
    for name in ("a", "b"):
        rig.servers[1].counters[slot_of(name.encode())] = 2**60
    for name in ("a", "b", "a"):
        async with process.lock(name):
            await asyncio.sleep(0.01)
    degraded = [event for event in events if isinstance(event, NodeDegraded)]
    assert [(event.node, "aioredlock_ng:fences" in event.reason) for event in degraded] == [
        ("memory-1", True)
    ]


async def test_a_clock_that_jumps_by_centuries_gets_fences_by_the_counters_alone(rig: Rig) -> None:
    jumps, usual = [0.0], clock()
    process, wrong = (
        await rig.process(wall_clock=usual),
        await rig.process(wall_clock=lambda: usual() + jumps[0]),
    )
    jumps[0], fences = 1e10, []
    for one in (process, wrong) * 5:
        async with one.lock("a") as lease:
            fences.append(lease.fence or 0)
    assert fences == sorted(set(fences))
    assert max(fences) < LATEST_US


@pytest.mark.parametrize("counter", [5, 2**52, *BEYOND])
async def test_a_forced_release_raises_a_counter_below_the_bound_and_leaves_one_above_it(
    rig: Rig, counter: int
) -> None:
    process = await rig.process(wall_clock=clock())
    rig.occupy(b"a")
    for server in rig.servers:
        server.counters[slot_of(b"a")] = counter
    assert await process.redlock.force_release("a") == 3
    for server in rig.servers:
        raised = server.counters[slot_of(b"a")]
        assert raised == counter if counter > LATEST_US else counter < raised <= LATEST_US


async def test_without_fencing_a_lease_has_no_fence_and_a_node_has_no_counter(rig: Rig) -> None:
    process = await rig.process(fencing=False)
    async with process.lock("a") as lease:
        assert lease.fence is None
    # A node that becomes trusted stores its floor for readers.
    assert all(server.counters.keys() <= {b"floor"} for server in rig.servers)


async def test_a_node_that_did_not_acknowledge_gets_the_fence_with_the_renewal(rig: Rig) -> None:
    process = await rig.process(ttl=3.0, wall_clock=clock())
    rig.disconnect(2)
    lease = await process.lock("a").acquire()
    rig.connect(2)
    await asyncio.sleep(2)
    assert rig.values(b"a")[2] is not None
    assert rig.servers[2].counters[slot_of(b"a")] == lease.fence
    await lease.release()
    await asyncio.sleep(0.1)
    assert rig.clean


async def test_a_node_that_refused_the_second_round_gets_the_fence_with_the_renewal(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=3.0, wall_clock=clock())
    for server in rig.servers:
        server.counters[slot_of(b"a")] = 2**52
    acquiring = asyncio.create_task(process.lock("a").acquire())
    # All nodes have granted, and the second round is under way to them.
    await asyncio.sleep(2.5 * WAY)
    rig.refuse("BUSY", 2)
    lease = await acquiring
    await asyncio.sleep(WAY)
    rig.refuse(None, 2)
    assert rig.servers[2].counters[slot_of(b"a")] == 2**52
    await asyncio.sleep(2)
    assert rig.servers[2].counters[slot_of(b"a")] == lease.fence
    await lease.release()
    await asyncio.sleep(0.1)
    assert rig.clean


def test_proposals_rise_and_follow_the_fastest_clock() -> None:
    fences = FenceClock()
    assert fences.propose(1600, (b"1",)) == 1600
    assert fences.propose(1600, (b"1",)) == 1616
    assert fences.propose(500, (b"1",)) == 1632
    fences.overtaken(5599, 0, 1600, 1800)
    assert fences.propose(1616, (b"1",)) == 5616
    assert fences.propose(1617, (b"1",), above=9000) == 9008
    fences.overtaken(100, 0, 1000, 1200)
    assert fences.propose(8000, (b"1",)) == 12_000, "a counter behind us teaches nothing"


def test_fences_proposed_at_once_for_different_slots_do_not_run_ahead_of_the_clock() -> None:
    fences = FenceClock()
    assert [fences.propose(1600, (b"%d" % slot,)) for slot in range(1000)] == [1600] * 1000
    assert fences.propose(1600, (b"1000", b"5")) == 1616
    assert fences.propose(1600, (b"1",)) == 1616, "of which nothing was proposed since"
    assert fences.propose(1600, (b"1",)) == 1632


@given(
    st.lists(
        st.tuples(
            st.integers(1, 200),
            st.sets(st.sampled_from([b"1", b"2", b"3"]), min_size=1),
            st.integers(0, 400),
        )
    )
)
def test_no_two_attempts_for_a_slot_have_a_fence_in_common(
    asked: list[tuple[int, set[bytes], int]],
) -> None:
    fences, last = FenceClock(), dict.fromkeys((b"1", b"2", b"3"), 0)
    for now_us, slots, above in asked:
        fence: int | None = fences.propose(now_us, tuple(slots), above)
        assert fence is not None
        assert fence > above
        for slot in slots:
            assert fence > last[slot]
        own = [fence]
        while (fence := following(own[-1], own[0])) is not None:
            own.append(fence)
        assert own == list(range(own[0], own[0] + STEP))
        last.update(dict.fromkeys(slots, own[-1]))


@given(st.lists(st.tuples(st.integers(1, 2 * BLOCK), st.booleans(), st.booleans()), min_size=1))
def test_no_two_grants_own_a_fence_in_common(steps: list[tuple[int, bool, bool]]) -> None:
    # One node alone: two quorums share one that stored both fences.
    counter = last = 0
    for ahead, followed, forced in steps:
        stored = counter + ahead
        stored += -stored % STEP
        first = first_of(stored, counter) if followed else stored
        assert last < first <= stored
        assert stored - first <= BLOCK
        last = stored + STEP - 1
        assert following(last - 1, stored) == last
        assert following(last, stored) is None
        # A forced release raises the counter by one.
        counter = stored + forced


def test_a_grant_owns_fences_from_the_counters_that_it_replaced_up_to_its_own() -> None:
    # A missing counter counts as one less than the stored fence. A forced release leaves a counter
    # anywhere in a block.
    for before in range(4 * STEP):
        for stored in range(before - before % STEP + STEP, 8 * STEP, STEP):
            assert mark_of(before) < first_of(stored, before) <= stored


def test_a_later_attempt_with_a_faster_answer_is_not_taken_for_a_faster_clock() -> None:
    fences = FenceClock()
    fences.overtaken(1000, 0, 1000, 1200)
    assert fences.offset == 1
    fences.overtaken(2900, 0, 2000, 3200)
    assert fences.offset == 1, "900 later, while our question took 1000 longer than it must"
    fences.overtaken(4300, 0, 4000, 4200)
    assert fences.offset == 301, "a clock that is ahead"


def test_a_proposal_is_above_a_counter_that_equals_the_clock() -> None:
    fences = FenceClock()
    assert fences.propose(1600, (b"1",), above=1600) == 1616


def test_the_shortest_trip_to_a_node_is_learned_from_any_answer() -> None:
    fences = FenceClock()
    for trip in (1000, 200, 1200):
        fences.overtaken(10_999, 0, 10_000, 10_000 + trip)
        fences.offset = 0
    fences.overtaken(10_999, 0, 10_000, 11_000)
    assert fences.offset == 200, "800 of 1000 may have passed before our request arrived"


def test_a_clock_that_jumps_back_during_a_question_hides_no_faster_clock() -> None:
    fences = FenceClock()
    fences.overtaken(999_999, 0, 1_000_000, 500_000)
    fences.overtaken(1_999_999, 0, 1_500_000, 1_500_200)
    assert fences.offset == 500_000 - 200


def test_a_damaged_counter_does_not_move_the_proposals_away_from_the_clock() -> None:
    fences = FenceClock()
    fences.overtaken(LATEST_US, 0, 1600, 1800)
    assert fences.propose(3200, (b"1",)) == 3200


async def test_names_that_share_a_counter_can_be_locked_together(rig: Rig) -> None:
    seen: dict[bytes, str] = {}
    names = (f"n{number}" for number in range(10 * SLOTS))
    one, other = next(
        (seen[slot], name)
        for name in names
        if seen.setdefault(slot := slot_of(name.encode()), name) != name
    )
    process = await rig.process(wall_clock=clock())
    async with asyncio.timeout(5), process.lock(one, other) as lease:
        assert lease.valid
    assert process.redlock.stats().second_rounds == 0


def test_slots_are_the_same_for_every_client() -> None:
    assert slot_of(b"orders:42") == b"1221"
    assert all(0 <= int(slot_of(b"%d" % number)) < SLOTS for number in range(1000))
