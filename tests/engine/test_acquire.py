"""Acquisition of a lock: the votes, the time they take, the clean-up, and the errors."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import AcquireTimeout, LockHeld, LockNotAcquired, Outcome, QuorumUnreachable
from aioredlock_ng._core.fencing import slot_of
from tests.support.rig import NODE_TIMEOUT

if TYPE_CHECKING:
    from tests.support.rig import Rig

SETTLED = 3 * NODE_TIMEOUT

pytestmark = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("rig", [1, 2, 3, 4, 5], indirect=True)
async def test_a_free_lock_is_granted_by_all_nodes_and_released_on_all(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.01)
    assert lease.nodes == (len(rig.servers), len(rig.servers))
    assert rig.values(b"a") == [lease.token.encode()] * len(rig.servers)
    assert await lease.release() is True
    await asyncio.sleep(0.01)
    assert rig.clean


@pytest.mark.parametrize(
    ("rig", "fault"),
    [
        *((count, "hang") for count in (1, 2, 3, 4, 5)),
        *((3, "disconnect"), (4, "disconnect"), (3, "refuse"), (5, "refuse")),
    ],
    indirect=["rig"],
)
async def test_an_acquire_fails_only_if_a_majority_of_nodes_fails(rig: Rig, fault: str) -> None:
    process = await rig.process()
    total = len(rig.servers)
    spare = total - (total // 2 + 1)
    for broken in range(total):
        await asyncio.sleep(
            0.01
        )  # releases are executed everywhere; a node in trouble may refuse them, too
        if broken:
            getattr(rig, fault)(
                *(("OOM command not allowed",) if fault == "refuse" else ()), broken - 1
            )
        if broken <= spare:
            async with process.lock("a"):
                pass
        else:
            with pytest.raises(QuorumUnreachable) as caught:
                await process.lock("a").try_acquire()
            assert len(caught.value.votes) == total
    rig.resume()
    await asyncio.sleep(SETTLED)
    assert not any(rig.keys()), "nothing is left on nodes that answer"


async def test_one_hung_node_costs_no_time(rig: Rig) -> None:
    process = await rig.process()
    rig.hang(0)
    before = now()
    async with process.lock("a"):
        assert now() - before < 0.01
    assert now() - before < 0.01


async def test_a_lost_round_is_decided_before_the_slowest_node_answers(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a", on=(0, 1))
    rig.ways[2] = 0.04
    before = now()
    assert await process.lock("a").try_acquire() is None
    assert now() - before < 0.01
    await asyncio.sleep(SETTLED)
    assert rig.keys()[2] == set(), "the late grant was released"


async def test_a_tie_on_an_even_number_ends_at_once() -> None:
    from tests.support.rig import Rig

    async with Rig(4) as rig:
        process = await rig.process()
        rig.occupy(b"a", on=(0, 1))
        before = now()
        assert await process.lock("a").try_acquire() is None
        assert now() - before < 0.01
        await asyncio.sleep(SETTLED)
        assert rig.keys()[2:] == [set(), set()]


@pytest.mark.parametrize("down", [0, 1, 2])
async def test_a_lock_held_by_another_is_held_though_one_node_is_down(rig: Rig, down: int) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    rig.disconnect(down)
    assert await process.lock("a").try_acquire() is None
    with pytest.raises(LockHeld):
        await process.lock("a", blocking_timeout=0).acquire()
    with pytest.raises(AcquireTimeout):
        await process.lock("a", blocking_timeout=0.5).acquire()


async def test_a_held_lock_with_a_node_down_is_not_requested_in_a_hot_loop(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    rig.disconnect(1)
    with pytest.raises(LockNotAcquired):
        await process.lock("a", blocking_timeout=10).acquire()
    assert process.redlock.stats().attempts < 40


async def test_errors_carry_the_vote_of_every_node_and_survive_pickling(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a", ttl=7.0, on=(0, 1))
    with pytest.raises(LockHeld) as caught:
        await process.lock("a", blocking_timeout=0).acquire()
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.resource == "a"
    assert error.votes == caught.value.votes
    assert [vote.outcome for vote in error.votes][:2] == [Outcome.HELD, Outcome.HELD]
    assert error.votes[0].remaining == pytest.approx(7.0, abs=0.01)
    assert 0 < error.elapsed < 0.1


async def test_a_permanent_refusal_by_a_majority_is_raised_at_once(rig: Rig) -> None:
    process = await rig.process()
    rig.refuse("NOPERM this user has no permissions", 0, 1)
    with pytest.raises(QuorumUnreachable, match="NOPERM"):
        await process.lock("a").acquire()


@pytest.mark.parametrize("timeout", [0.0, 0.03, 0.5])
async def test_blocking_timeout_bounds_everything_although_all_nodes_hang(
    rig: Rig, timeout: float
) -> None:
    process = await rig.process()
    rig.hang(0, 1, 2)
    before = now()
    with pytest.raises(QuorumUnreachable):
        await process.lock("a", blocking_timeout=timeout).acquire()
    # Zero is one attempt: as long as a round lasts.
    assert now() - before <= (timeout or NODE_TIMEOUT + 0.01) + 1e-6
    rig.resume()
    await asyncio.sleep(SETTLED)
    assert rig.clean, "a timed-out acquire on nodes that then wake leaves no key"


async def test_attempts_of_the_same_few_milliseconds_time_out_together(rig: Rig) -> None:
    process = await rig.process()
    rig.hang(0, 1, 2)

    async def attempt(number: int) -> tuple[float, float]:
        await asyncio.sleep(number * 0.0002)
        began = now()
        with pytest.raises(QuorumUnreachable):
            await process.lock(f"a{number}").try_acquire()
        return round(now(), 6), now() - began

    results = await asyncio.gather(*map(attempt, range(50)))
    # The attempts begin within 10 ms. With a timer for each, the loop would wake up 50 times.
    assert len({end for end, _ in results}) <= 4
    for _, lasted in results:
        assert NODE_TIMEOUT - 1e-6 <= lasted <= NODE_TIMEOUT + 0.01
    rig.resume()
    await asyncio.sleep(SETTLED)


@pytest.mark.parametrize(
    ("names", "whom"), [(("b",), "another after"), (("a",), "bob in this process after")]
)
async def test_the_error_of_a_blocking_timeout_names_the_holder(
    rig: Rig, names: tuple[str, ...], whom: str
) -> None:
    process = await rig.process(owner="bob")
    lease = await process.lock(*names).acquire()
    if names != ("a",):
        rig.occupy(b"a")
    before = now()
    with pytest.raises(AcquireTimeout, match=f"still held by {whom} 1.5 s") as caught:
        await process.lock("a", blocking_timeout=1.5).acquire()
    assert now() - before == pytest.approx(1.5, abs=0.001)
    assert isinstance(caught.value, TimeoutError)
    await lease.release()


async def test_blocking_timeout_goes_on_while_the_lock_changes_hands(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a")

    async def change_hands() -> None:
        for holder in range(1_000):
            await asyncio.sleep(0.05)
            rig.vacate(b"a")
            rig.occupy(b"a", value=b"%d" % holder)

    changing = asyncio.create_task(change_hands())
    before = now()
    with pytest.raises(AcquireTimeout):
        await process.lock("a", blocking_timeout=1.5).acquire()
    assert now() - before == pytest.approx(1.5, abs=0.001)
    # A change causes a request. The key is never free when the request arrives.
    assert process.redlock.stats().attempts <= 3
    changing.cancel()


async def test_elapsed_time_and_drift_are_subtracted_from_the_remaining_time(rig: Rig) -> None:
    process = await rig.process(ttl=10.0)
    rig.ways[:] = [0.02] * 3
    lease = await process.lock("a").acquire()
    assert lease.remaining() == pytest.approx(10.0 - 0.04 - (10.0 * 0.01 + 0.002), abs=1e-6)


async def test_a_grant_with_too_little_left_does_not_count(rig: Rig) -> None:
    process = await rig.process(ttl=1.0, node_timeout=0.1, min_validity=0.88)
    rig.ways[:] = [0.045] * 3
    lease = await process.lock("a").try_acquire()
    assert lease is not None
    await lease.release()
    # A second round for the fence takes another 0.09 s. Each round is in time, but only 0.81 s
    # would be left.
    for server in rig.servers:
        server.counters[slot_of(b"a")] = 2**52
    with pytest.raises(QuorumUnreachable, match="granted so late that too little of the ttl"):
        await process.lock("a").try_acquire()
    assert process.redlock.stats().second_rounds == 1
    await asyncio.sleep(SETTLED)
    assert rig.clean


async def test_a_task_behind_a_late_grant_learns_why_the_grant_does_not_count(rig: Rig) -> None:
    process = await rig.process(ttl=1.0, node_timeout=0.1, min_validity=0.88)
    for server in rig.servers:
        server.counters[slot_of(b"a")] = 2**52
    rig.ways[:] = [0.035, 0.045, 0.045]
    lock = process.lock("a", fail_fast=True)
    both = [asyncio.create_task(lock.acquire()) for _ in range(2)]
    # Node 0 has confirmed the second fence. Then two nodes are lost, before node 1 confirms.
    await asyncio.sleep(0.17)
    rig.disconnect(0, 2)
    for task in both:
        with pytest.raises(QuorumUnreachable, match="granted so late that too little of the ttl"):
            await task
    assert process.redlock.stats().attempts == 1


async def test_late_grants_after_success_count(rig: Rig) -> None:
    process = await rig.process()
    rig.ways[2] = 0.03
    lease = await process.lock("a").acquire()
    assert lease.nodes == (2, 3)
    await asyncio.sleep(0.1)
    assert lease.nodes == (3, 3)
    await lease.release()
    await asyncio.sleep(0.1)
    assert rig.clean


async def test_every_attempt_has_a_token_of_its_own(rig: Rig) -> None:
    process = await rig.process()
    tokens = set()
    server = rig.servers[0]
    execute = server.execute

    def noting(command, by):  # type: ignore[no-untyped-def]
        if command.script.name.startswith("acquire"):
            tokens.add(command.args[0])
        return execute(command, by)

    server.execute = noting  # type: ignore[method-assign]
    rig.occupy(b"a", on=(1, 2))
    for _ in range(5):
        assert await process.lock("a").try_acquire() is None
    with pytest.raises(AcquireTimeout):
        await process.lock("a", blocking_timeout=6.0).acquire()
    assert len(tokens) >= 6
    assert process.redlock.stats().attempts >= len(tokens)


async def test_several_resources_are_taken_all_or_none(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    async with other.lock("b"):
        assert await process.lock("a", "b", "c").try_acquire() is None
        await asyncio.sleep(0.01)
        assert rig.keys() == [{b"b"}] * 3
    async with process.lock("a", "b", "c"):
        assert rig.keys() == [{b"a", b"b", b"c"}] * 3
        for name in "abc":
            assert await other.lock(name).try_acquire() is None
    await asyncio.sleep(0.01)
    assert rig.clean


@pytest.mark.parametrize("same_process", [True, False])
async def test_overlapping_sets_in_any_order_neither_deadlock_nor_overlap(
    rig: Rig, same_process: bool
) -> None:
    first = await rig.process()
    second = first if same_process else await rig.process()
    inside: set[str] = set()

    async def work(process, *names: str) -> None:  # type: ignore[no-untyped-def]
        for _ in range(5):
            async with process.lock(*names):
                assert inside.isdisjoint(names)
                inside.update(names)
                await asyncio.sleep(0.003)
                inside.difference_update(names)

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        group.create_task(work(first, "a", "b"))
        group.create_task(work(second, "b", "a"))
        group.create_task(work(first, "b", "c"))
        group.create_task(work(second, "c"))
    await asyncio.sleep(SETTLED)
    assert rig.clean


async def test_the_majority_listed_first_being_down_leaves_no_key_on_the_rest(rig: Rig) -> None:
    process = await rig.process()
    rig.disconnect(0, 1)
    for _ in range(3):
        with pytest.raises(QuorumUnreachable):
            await process.lock("a").try_acquire()
        await asyncio.sleep(0.01)
        assert rig.clean


async def test_pending_releases_are_delivered_to_a_lost_node_when_it_reconnects(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.01)
    rig.disconnect(0)
    assert await lease.release() is True
    await asyncio.sleep(1)
    assert rig.keys() == [{b"a"}, set(), set()]
    rig.connect(0)
    await asyncio.sleep(0.01)
    assert rig.clean


async def test_an_acquire_whose_answer_was_cut_off_is_released_when_the_node_is_back(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.hang(1, 2)
    acquiring = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.0015)
    assert rig.keys()[0] == {b"a"}
    rig.disconnect(0)
    acquiring.cancel()
    await asyncio.wait([acquiring])
    rig.connect(0)
    rig.resume()
    await asyncio.sleep(SETTLED)
    assert rig.clean


async def test_a_timeout_during_an_attempt_reports_the_votes_of_the_attempt_before(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.refuse("OOM command not allowed", 0, 1, 2)
    rig.ways[:] = [0.045] * 3
    for hundredths in range(10, 120, 2):
        with pytest.raises(QuorumUnreachable, match="OOM"):
            await process.lock("a", blocking_timeout=hundredths / 100).acquire()
