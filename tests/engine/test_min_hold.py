"""A lock with `min_hold` stays taken for that time after its grant, however its lease ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import AcquireTimeout, LockHeld, LockLost, LockNotAcquired, QuorumUnreachable
from aioredlock_ng._core.over_mark import over_mark
from tests.support.rig import NODE_TIMEOUT, WAY, occupied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioredlock_ng._engine.keeping.lease_record import LeaseRecord
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time

MIN_HOLD = 5.0

SLACK = 0.4
"""Seconds after the end of a minimum hold within which the lock is free: drift, and the two rounds
of a grant.
"""


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture(autouse=True)
async def nothing_is_left(rig: Rig) -> AsyncIterator[None]:
    """Each test ends long after all minimum holds of it."""
    yield
    rig.resume()
    await asyncio.sleep(60)


async def freed_at(process: Process, name: str = "a") -> float:
    """Return the instant at which another client gets the lock that it waits for."""
    lease = await process.lock(name).acquire()
    freed = now()
    await lease.release()
    return freed


@pytest.mark.parametrize("ttl", [1.0, 5.0, 30.0])
async def test_a_lock_that_is_released_early_stays_taken_until_its_min_hold_is_over(
    rig: Rig, ttl: float
) -> None:
    process, other = await rig.process(ttl=ttl), await rig.process(ttl=ttl)
    async with process.lock("a", min_hold=MIN_HOLD):
        granted = now()
    assert await other.lock("a").try_acquire() is None
    assert await process.lock("a").try_acquire() is None, "the process itself has to wait as well"
    assert granted + MIN_HOLD <= await freed_at(other) <= granted + MIN_HOLD + SLACK


async def test_a_release_after_min_hold_frees_the_lock_at_once(rig: Rig) -> None:
    process, other = await rig.process(ttl=3.0), await rig.process()
    async with process.lock("a", min_hold=MIN_HOLD):
        await asyncio.sleep(MIN_HOLD)
    assert await other.lock("a").try_acquire() is not None
    await other.redlock.aclose()


@pytest.mark.parametrize("ttl", [1.0, 20.0])
async def test_a_process_that_dies_right_after_its_grant_keeps_its_min_hold(
    rig: Rig, ttl: float
) -> None:
    process, other = await rig.process(ttl=ttl), await rig.process()
    await process.lock("a", min_hold=MIN_HOLD, auto_extend=False).acquire()
    granted = now()
    for node in process.nodes:
        node.disconnect()
    assert granted + MIN_HOLD <= await freed_at(other) <= granted + max(ttl, MIN_HOLD) + SLACK


async def test_a_slow_grant_that_counts_leaves_min_hold_to_the_keys(rig: Rig) -> None:
    process, other = await rig.process(ttl=1.0), await rig.process()
    rig.ways[:] = [0.045] * 3
    await process.lock("a", min_hold=MIN_HOLD, auto_extend=False).acquire()
    granted = now()
    for node in process.nodes:
        node.disconnect()
    rig.ways[:] = [WAY] * 3
    assert await freed_at(other) >= granted + MIN_HOLD


async def test_a_grant_that_comes_too_late_for_its_min_hold_does_not_count_and_is_undone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await rig.process(ttl=10.0)
    context = process.redlock.engine().context
    clock = context.clock
    # The event loop stands still for half a second, and the answers are there when it goes on.
    monkeypatch.setattr(
        context, "clock", lambda: clock() + (0.5 if context.counters.attempts else 0.0)
    )
    with pytest.raises(QuorumUnreachable, match="before min_hold is over"):
        await process.lock("a", min_hold=10.0, blocking_timeout=0).acquire()
    await asyncio.sleep(0.1)
    assert rig.clean


async def test_a_lease_is_renewed_for_its_ttl_while_and_after_its_min_hold_runs(rig: Rig) -> None:
    process, other = await rig.process(ttl=1.5), await rig.process()
    await process.lock("a", min_hold=MIN_HOLD).acquire()
    await asyncio.sleep(2 * MIN_HOLD)
    died = now()
    for node in process.nodes:
        node.disconnect()
    assert died < await freed_at(other) <= died + 1.6


async def test_renewals_do_not_shorten_the_min_hold(rig: Rig) -> None:
    process, other = await rig.process(ttl=1.5), await rig.process()
    lease = await process.lock("a", min_hold=MIN_HOLD).acquire()
    granted = now()
    await asyncio.sleep(2.0)
    assert process.redlock.stats().renewals >= 2
    assert lease.remaining() <= 1.5, "the lease is renewed for its ttl"
    for node in process.nodes:
        node.disconnect()
    assert granted + MIN_HOLD <= await freed_at(other) <= granted + MIN_HOLD + SLACK


async def test_leases_with_and_without_min_hold_are_renewed_each_for_its_own_time(rig: Rig) -> None:
    process, other = await rig.process(ttl=1.5), await rig.process()
    for name, min_hold in (("a", None), ("b", MIN_HOLD), ("c", 2 * MIN_HOLD)):
        await process.lock(name, min_hold=min_hold).acquire()
    granted = now()
    await asyncio.sleep(2.0)
    for node in process.nodes:
        node.disconnect()
    left = [rig.servers[0].pttl(key) / 1000 for key in (b"a", b"b", b"c")]
    assert left[0] <= 1.5
    assert MIN_HOLD - 2 <= left[1] <= MIN_HOLD - 2 + 1.3
    assert 2 * MIN_HOLD - 2 <= left[2] <= 2 * MIN_HOLD - 2 + 1.3
    assert await freed_at(other, "a") < granted + 4
    await freed_at(other, "b")
    await freed_at(other, "c")


async def test_a_release_is_owed_for_the_life_that_other_leases_gave_the_keys(rig: Rig) -> None:
    process = await rig.process(ttl=0.5)
    extender = process.redlock.engine().extender
    await process.lock("longer", min_hold=5.9).acquire()
    lease = await process.lock("a", min_hold=5.2).acquire()
    # By itself, the manager renews leases together only if their minimum holds end at almost the
    # same time. Their keys then live no longer than at first.
    extender.renew(list(extender.leases), 0.5)
    await asyncio.sleep(NODE_TIMEOUT)
    sent, expires = process.questions(), now() + rig.servers[0].pttl(b"a") / 1000
    await lease.release()
    owed = [command.owed_until for command in sent if command.owed_until is not None]
    assert owed
    assert min(owed) >= expires


async def test_a_renewal_with_other_leases_keeps_the_bound_of_min_hold_after_a_crash(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=0.5)
    await process.lock("longer", min_hold=MIN_HOLD + 0.9).acquire()
    await process.lock("a", min_hold=MIN_HOLD + 0.3).acquire()
    granted = now()
    while process.redlock.stats().renewals < 2:
        await asyncio.sleep(0.01)
    expires = now() + rig.servers[0].pttl(b"a") / 1000
    assert expires <= granted + (MIN_HOLD + 0.3) * 1.01 + 0.002 + 2 * NODE_TIMEOUT + 0.1


async def test_an_extension_by_hand_does_not_shorten_the_min_hold(rig: Rig) -> None:
    process, other = await rig.process(ttl=1.5), await rig.process()
    lease = await process.lock("a", min_hold=MIN_HOLD, auto_extend=False).acquire()
    granted = now()
    await lease.extend(0.5)
    for node in process.nodes:
        node.disconnect()
    assert await freed_at(other) >= granted + MIN_HOLD


async def test_a_lost_lease_keeps_its_min_hold(rig: Rig) -> None:
    process, other = await rig.process(ttl=1.5), await rig.process()
    granted = now()
    await process.lock("a", min_hold=MIN_HOLD, auto_extend=False).acquire()
    await asyncio.sleep(2)
    assert process.redlock.stats().lost == 1
    assert granted + MIN_HOLD <= await freed_at(other) <= granted + MIN_HOLD + SLACK


async def test_a_closed_manager_and_an_abandoned_lease_keep_the_min_hold(rig: Rig) -> None:
    process, other = await rig.process(ttl=1.5), await rig.process()
    await process.lock("a", min_hold=MIN_HOLD).acquire()
    (await process.lock("b", min_hold=MIN_HOLD).acquire()).abandon()
    granted = now()
    await process.redlock.aclose()
    for name in ("a", "b"):
        assert await other.lock(name).try_acquire() is None
    assert granted + MIN_HOLD <= await freed_at(other, "a") <= granted + MIN_HOLD + SLACK
    await freed_at(other, "b")


async def test_an_attempt_that_is_cancelled_leaves_nothing_for_its_min_hold(rig: Rig) -> None:
    process = await rig.process()
    asked = asyncio.ensure_future(process.lock("a", min_hold=MIN_HOLD).acquire())
    await asyncio.sleep(WAY)
    asked.cancel()
    await asyncio.sleep(0.1)
    assert rig.clean


@pytest.mark.parametrize("ttl", [1.0, 30.0])
async def test_an_early_release_is_owed_for_as_long_as_the_keys_live(rig: Rig, ttl: float) -> None:
    process = await rig.process(ttl=ttl)
    lease = await process.lock("a", min_hold=MIN_HOLD).acquire()
    sent, expires = process.questions(), now() + rig.servers[0].pttl(b"a") / 1000
    await lease.release()
    owed = [command.owed_until for command in sent if command.owed_until is not None]
    assert owed
    assert min(owed) >= expires


async def test_the_undo_of_an_attempt_is_owed_for_as_long_as_its_keys_live(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    rig.occupy(b"a", 1.0, on=(1, 2))
    sent = process.questions()
    asked = asyncio.ensure_future(process.lock("a", min_hold=MIN_HOLD).try_acquire())
    await asyncio.sleep(1.5 * WAY)
    expires = now() + rig.servers[0].pttl(b"a") / 1000
    assert await asked is None
    owed = [command.owed_until for command in sent if command.owed_until is not None]
    assert owed
    assert min(owed) >= expires


async def test_a_grant_that_no_caller_received_is_freed_at_once(rig: Rig) -> None:
    process = await rig.process()
    counters = process.redlock.engine().context.counters
    asked = asyncio.ensure_future(process.lock("a", min_hold=MIN_HOLD).acquire())
    adopt = process.redlock.engine().extender.adopt

    def adopted(record: LeaseRecord) -> None:
        adopt(record)
        asyncio.get_running_loop().call_soon(asked.cancel)

    process.redlock.engine().extender.adopt = adopted  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (counters.acquired, counters.cancelled) == (1, 1)
    await asyncio.sleep(0.1)
    assert rig.clean


async def test_an_attempt_without_a_quorum_is_undone_at_once(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a", 1.0, on=(1, 2))
    assert await process.lock("a", min_hold=MIN_HOLD).try_acquire() is None
    await asyncio.sleep(0.1)
    assert rig.values(b"a") == [None, b"foreign", b"foreign"]


@pytest.mark.parametrize("hung", [(2,), (1, 2)])
async def test_nodes_that_hang_at_the_release_do_not_free_the_lock_early(
    rig: Rig, hung: tuple[int, ...]
) -> None:
    process, other = await rig.process(ttl=10.0), await rig.process()
    lease = await process.lock("a", min_hold=MIN_HOLD).acquire()
    granted = now()
    await asyncio.sleep(0.05)
    rig.hang(*hung)
    await lease.release()
    await asyncio.sleep(2)
    rig.resume()
    # The nodes that hung count the rest of the minimum hold from when they go on.
    latest = granted + MIN_HOLD + SLACK + (2 if len(hung) > 1 else 0)
    assert granted + MIN_HOLD <= await freed_at(other) <= latest


async def test_pending_releases_neither_free_nor_prolong_the_lock(rig: Rig) -> None:
    process, other = await rig.process(ttl=3.0), await rig.process()
    lease = await process.lock("a", min_hold=MIN_HOLD).acquire()
    granted = now()
    await asyncio.sleep(0.05)
    for node in process.nodes:
        node.disconnect()
    assert await lease.release() in (True, False)
    await asyncio.sleep(4.5)
    for node in process.nodes:
        node.connect()
    assert rig.values(b"a") == [over_mark(lease.token.encode())] * 3
    assert granted + MIN_HOLD <= await freed_at(other) <= granted + MIN_HOLD + SLACK


async def test_a_node_that_was_cut_off_for_longer_than_min_hold_keeps_no_key(rig: Rig) -> None:
    process, other = await rig.process(ttl=3.0), await rig.process()
    lease = await process.lock("a", min_hold=MIN_HOLD).acquire()
    process.nodes[0].disconnect()
    await lease.release()
    await asyncio.sleep(MIN_HOLD + SLACK)
    process.nodes[0].connect()
    assert rig.clean
    assert await other.lock("a").try_acquire() is not None
    await other.redlock.aclose()


async def test_waiters_of_all_processes_are_woken_by_the_end_and_none_is_offered_the_lock_before(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=30.0)
    others = [await rig.process() for _ in range(3)]
    lease = await process.lock("a", min_hold=MIN_HOLD).acquire()
    granted = now()
    waiting = [asyncio.ensure_future(freed_at(other)) for other in others]
    waiting += [asyncio.ensure_future(freed_at(process)) for _ in range(2)]
    await asyncio.sleep(1.0)
    await lease.release()
    await asyncio.sleep(0.1)
    assert rig.values(b"a") == [over_mark(lease.token.encode())] * 3
    assert [len(server.queues.members(b"a")) for server in rig.servers] == [4] * 3
    attempts = sum(other.redlock.stats().attempts for other in others)
    freed = await asyncio.gather(*waiting)
    assert granted + MIN_HOLD <= min(freed)
    assert max(freed) <= granted + MIN_HOLD + 2 * SLACK
    assert attempts == 3, "no attempt is made before the end"


async def test_a_grant_with_min_hold_is_not_passed_on(rig: Rig) -> None:
    process = await rig.process()
    lock = process.lock("a", min_hold=1.0)
    leases = []

    async def work() -> None:
        async with lock as lease:
            leases.append((lease.token, now()))

    await asyncio.gather(*(work() for _ in range(3)))
    tokens, starts = zip(*leases, strict=True)
    assert len(set(tokens)) == 3
    assert all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(starts))
    assert process.redlock.stats().passed_on == 0


async def test_a_lock_with_min_hold_takes_no_grant_of_a_lock_without(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    waiting = asyncio.ensure_future(process.lock("a", min_hold=MIN_HOLD).acquire())
    await asyncio.sleep(0)
    await lease.release()
    second = await waiting
    granted = now()
    assert second.token != lease.token
    await second.release()
    assert await freed_at(process) >= granted + MIN_HOLD


@pytest.mark.parametrize(
    "options", [{"fencing": False}, {"recovery_guard": None}, {"owner": False}]
)
async def test_min_hold_needs_neither_fences_nor_the_guard_nor_labels(
    rig: Rig, options: dict[str, object]
) -> None:
    process, other = await rig.process(**options), await rig.process(**options)
    async with process.lock("a", "b", min_hold=MIN_HOLD, fair=True):
        granted = now()
    assert await other.lock("b").try_acquire() is None
    assert granted + MIN_HOLD <= await freed_at(other, "b") <= granted + MIN_HOLD + SLACK


async def test_a_repaired_key_lives_until_the_end_of_min_hold(rig: Rig) -> None:
    process = await rig.process(ttl=1.5)
    lease = await process.lock("a", min_hold=MIN_HOLD).acquire()
    await asyncio.sleep(1.0)
    rig.vacate(b"a", on=[0])
    await asyncio.sleep(0.2)
    assert rig.values(b"a") == [lease.token.encode()] * 3
    assert rig.servers[0].pttl(b"a") / 1000 >= MIN_HOLD - 1.3
    await process.redlock.aclose()


async def test_a_loss_leaves_the_marks_of_a_minority_to_expire(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    lease = await process.lock("a", min_hold=MIN_HOLD).acquire()
    await asyncio.sleep(1)
    rig.vacate(b"a", on=[0, 1])
    await lease.wait_lost()
    await asyncio.sleep(0.1)
    assert rig.values(b"a") == [None, None, over_mark(lease.token.encode())]
    assert await other.lock("a").try_acquire() is not None
    await other.redlock.aclose()


async def test_inspect_names_the_last_holder_of_a_lock_that_its_min_hold_keeps(rig: Rig) -> None:
    process, other = await rig.process(owner="nightly"), await rig.process()
    lease = await process.lock("a", min_hold=MIN_HOLD).acquire()
    before = await other.redlock.inspect("a")
    assert (before.held, before.over) == (True, False)
    await lease.release()
    info = await other.redlock.inspect("a")
    assert (info.held, info.over, info.token, info.nodes) == (True, True, lease.token, 3)
    assert [(answer.over, answer.token) for answer in info.answers] == [(True, lease.token)] * 3
    assert info.owner is not None
    assert (info.owner.label, info.owner.fence) == ("nightly", lease.fence)
    assert MIN_HOLD - 0.1 < info.remaining < MIN_HOLD + SLACK
    assert await other.redlock.locked("a")


async def test_an_error_names_the_last_holder_of_a_lock_that_its_min_hold_keeps(rig: Rig) -> None:
    process, other = await rig.process(owner="nightly"), await rig.process()
    async with process.lock("a", min_hold=MIN_HOLD):
        pass
    with pytest.raises(LockHeld, match=r"held by nightly \(released, kept by min_hold\)"):
        await other.lock("a", blocking_timeout=0).acquire()
    with pytest.raises(AcquireTimeout, match=r"held by nightly \(released, kept by min_hold\)"):
        await other.lock("a", blocking_timeout=1).acquire()


async def test_a_lock_is_held_where_some_nodes_have_its_token_and_some_its_mark(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    lease = await process.lock("a", min_hold=MIN_HOLD).acquire()
    process.nodes[2].disconnect()
    await lease.release()
    rig.vacate(b"a", on=[0])
    info = await other.redlock.inspect("a")
    assert (info.held, info.over, info.nodes) == (True, True, 2)
    assert await other.redlock.force_release("a", token=lease.token) == 2
    assert rig.clean


@pytest.mark.parametrize("by_token", [True, False])
async def test_a_forced_release_frees_a_lock_that_its_min_hold_keeps(
    rig: Rig, by_token: bool
) -> None:
    process, other = await rig.process(), await rig.process()
    async with process.lock("a", min_hold=MIN_HOLD) as lease:
        pass
    waiting = asyncio.ensure_future(other.lock("a").acquire())
    await asyncio.sleep(0.5)
    assert await process.redlock.force_release("a", token=lease.token if by_token else None) == 3
    async with asyncio.timeout(0.2):
        await (await waiting).release()


async def test_a_node_that_forgot_the_lock_does_not_free_it_before_its_min_hold(rig: Rig) -> None:
    process, other = (
        await rig.process(max_ttl=MIN_HOLD, ttl=2.0),
        await rig.process(max_ttl=MIN_HOLD, ttl=2.0),
    )
    async with process.lock("a", min_hold=MIN_HOLD):
        granted = now()
    rig.servers[0].restart()
    rig.servers[1].restart()
    assert await freed_at(other) >= granted + MIN_HOLD


@pytest.mark.parametrize("ttl", [2.0, 30.0])
async def test_slots_of_a_semaphore_stay_taken_for_their_min_hold(rig: Rig, ttl: float) -> None:
    process, other = await rig.process(ttl=ttl), await rig.process(ttl=ttl)
    grants: list[tuple[float, int | None]] = []

    async def work(by: Process) -> None:
        async with by.redlock.semaphore("a", 2, min_hold=MIN_HOLD) as lease:
            grants.append((now(), lease.slot))

    began = now()
    await asyncio.gather(*(work(by) for by in (process, other, process, other, process)))
    rounds = [round((at - began) / MIN_HOLD - 0.05) for at, _ in sorted(grants)]
    assert rounds == [0, 0, 1, 1, 2]
    for slot in (1, 2):
        starts = sorted(at for at, taken in grants if taken == slot)
        assert all(later - earlier >= MIN_HOLD for earlier, later in itertools.pairwise(starts))


async def test_a_lock_that_its_min_hold_keeps_has_no_leader(rig: Rig) -> None:
    process, other = await rig.process(), await rig.process()
    watching = other.redlock.election("a").watch()
    async with process.lock("a", min_hold=MIN_HOLD, owner="ann"):
        await asyncio.sleep(1)
        assert await anext(watching) == "ann"
    assert await asyncio.wait_for(anext(watching), 2) is None


async def test_lines_and_counters_are_left_as_after_any_release(rig: Rig) -> None:
    process = await rig.process()
    async with process.lock("a", min_hold=1.0):
        pass
    assert occupied(process.redlock.engine().lines) == []
    assert (process.redlock.stats().held, process.redlock.stats().released) == (0, 1)


@pytest.mark.parametrize(
    ("rig", "seed"),
    [(3, 0), (5, 1), (3, 2), (5, 3), (3, 4), (5, 5), (3, 6), (5, 7)],
    indirect=["rig"],
)
async def test_grants_are_min_hold_apart_through_failures_of_nodes_and_holders(
    rig: Rig, seed: int
) -> None:
    rng = random.Random(seed)
    ttl, min_hold = rng.choice([(0.5, 2.0), (2.0, 2.0), (4.0, 1.0)])
    options = {"ttl": ttl, "max_ttl": 4.0, "node_timeout": 0.1}
    fleet = [await rig.process(**options) for _ in range(3)]
    grants: list[float] = []
    ends = now() + 120

    async def work(process: Process) -> None:
        while now() < ends:
            lock = process.lock("a", min_hold=min_hold, blocking_timeout=rng.choice([20, 0, 1]))
            with contextlib.suppress(LockNotAcquired, LockLost, TimeoutError):
                async with asyncio.timeout(rng.choice([None, 0.5, 10])):
                    lease = await lock.acquire()
                    grants.append(now())
                    await asyncio.sleep(rng.choice([0, 0.2, 3]))
                    if rng.random() < 0.8:
                        await lease.release()
                    else:
                        lease.abandon()
            await asyncio.sleep(rng.random())

    async def disturb() -> None:
        minority = len(rig.servers) // 2
        while now() < ends:
            await asyncio.sleep(rng.expovariate(1))
            index = rng.randrange(len(rig.servers))
            match rng.choice(["hang", "resume", "resume", "cut", "way", "forget", "refuse"]):
                case "hang":
                    rig.hang(index)
                case "resume":
                    rig.resume()
                    rig.refuse(None, *range(len(rig.servers)))
                case "cut":
                    process = rng.choice(fleet)
                    process.nodes[index].disconnect()
                    asyncio.get_running_loop().call_later(
                        rng.random() * 3, process.nodes[index].connect
                    )
                case "way":
                    rig.ways[index] = rng.choice([WAY, 0.01, 0.04])
                case "forget":
                    # Not all nodes at once: the guard takes them for new ones then.
                    rig.servers[index % minority].restart()
                case "refuse":
                    rig.refuse("MISCONF cannot persist", index)
        rig.resume()
        rig.refuse(None, *range(len(rig.servers)))

    tasks = [asyncio.ensure_future(work(process)) for process in fleet]
    await disturb()
    async with asyncio.timeout(60):
        await asyncio.gather(*tasks)
    assert len(grants) >= 5
    assert min(later - earlier for earlier, later in itertools.pairwise(grants)) >= min_hold
