"""The requests of waiters to their queues.

Waiters send few requests, and each waiter learns in time that all waiters before it have gone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng._core.waking import MOST_AHEAD
from aioredlock_ng._engine.waiting.place import REFRESH_EVERY
from aioredlock_ng._engine.waiting.queue_entry import QUEUE_LIFE
from tests.engine.test_queue import (
    GRACE,
    HAND_OVER,
    KEY,
    Stopped,
    kill,
    members,
    now,
    silent_process,
    waiters,
    waiting,
)
from tests.support.rig import WAY

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time

TTL = 3.0

Line = list[tuple["Process", "asyncio.Future[Lease]"]]


def longest(rank: int) -> float:
    """Return the longest time in seconds between two requests of a waiter of this rank."""
    return (REFRESH_EVERY + min(rank, MOST_AHEAD) * QUEUE_LIFE) / (1 if rank < 2 else 2)


def die(rig: Rig, line: Line) -> None:
    for process, each in line:
        kill(rig, process)
        each.cancel()


async def close(line: Line) -> None:
    for process, _ in line:
        await process.redlock.aclose()


async def test_a_waiter_further_back_in_the_queue_sends_fewer_requests(rig: Rig) -> None:
    rig.occupy(KEY, ttl=6000)
    line = await waiters(rig, 12)
    asked = [process.questions() for process, _ in line]
    await asyncio.sleep(2000)
    looks = [sum(command.script.name == "stand" for command in each) for each in asked]
    for rank, count in enumerate(looks):
        # The first waiter sends fewer requests to a node that tracks the key. A waiter behind the
        # second sends each request to one node only.
        nodes = 1 if rank > 1 else 3
        assert (
            nodes * 2000 / longest(rank) * (0.3 if rank == 0 else 1) - 3
            <= count
            <= 2 * nodes * 2000 / longest(rank) + 3
        )
    assert sum(looks[2:]) < looks[0] + looks[1]
    for _, each in line:
        each.cancel()


async def test_a_queue_that_moves_costs_its_waiters_no_more_than_one_refresh_of_each_node(
    rig: Rig,
) -> None:
    rig.occupy(KEY, ttl=6000)
    line = await waiters(rig, 30)
    asked = [process.questions() for process, _ in line[20:]]
    await asyncio.sleep(1)
    for _, each in line[:10]:
        each.cancel()
        await asyncio.sleep(20)
    for each in asked:
        looks = sum(command.script.name == "stand" for command in each)
        # The interval of these waiters is at least 57.5 s, and each request goes to one node.
        assert looks <= 200 / 57.5 + 1
    for _, each in line:
        each.cancel()


async def test_waiters_make_no_further_attempt_while_the_holder_renews_its_lease(
    rig: Rig,
) -> None:
    holder = await rig.process(ttl=TTL)
    lease = await holder.lock("a").acquire()
    line = await waiters(rig, 2)
    await asyncio.sleep(20 * TTL)
    assert [process.redlock.stats().attempts for process, _ in line] == [1, 1]
    await lease.release()
    for _, each in line:
        await (await each).release()


@pytest.mark.parametrize("dead", range(4))
async def test_a_waiter_gets_the_lock_although_the_holder_and_all_waiters_before_it_died(
    rig: Rig, dead: int
) -> None:
    holder = await rig.process(ttl=TTL)
    await holder.lock("a").acquire()
    line = await waiters(rig, dead + 1)
    died = now()
    kill(rig, holder)
    die(rig, line[:dead])
    lease = await line[dead][1]
    if dead < 2:
        assert now() - died < TTL + dead * GRACE + 2 * HAND_OVER, (
            "the second knows when the lock expires"
        )
    else:
        assert now() - died < longest(dead) + HAND_OVER
    await lease.release()
    await holder.redlock.aclose()
    await close(line[:dead])


@pytest.mark.parametrize("down", range(3))
async def test_a_node_that_is_down_does_not_delay_a_waiter_behind_dead_ones(
    rig: Rig, down: int
) -> None:
    holder = await rig.process(ttl=TTL)
    await holder.lock("a").acquire()
    line = await waiters(rig, 3)
    rig.stop(down)
    await asyncio.sleep(1)
    died = now()
    kill(rig, holder)
    die(rig, line[:2])
    lease = await line[2][1]
    assert now() - died < longest(2) + HAND_OVER
    await lease.release()
    await holder.redlock.aclose()
    await close(line[:2])


# By the second instant the new holder has renewed.
@pytest.mark.parametrize("after", [GRACE / 2, 2 * TTL])
async def test_after_a_hand_over_the_second_waiter_knows_when_the_lock_expires(
    rig: Rig, after: float
) -> None:
    """The waiter was the third at first. The request of the new first lets the nodes notify it."""
    holder = await rig.process()
    lease = await holder.lock("a").acquire()
    line = await waiters(rig, 3, ttl=TTL)
    await lease.release()
    await line[0][1]
    await asyncio.sleep(after)
    died = now()
    kill(rig, line[0][0])
    die(rig, line[1:2])
    await (await line[2][1]).release()
    assert now() - died < TTL + GRACE + 2 * HAND_OVER
    await close(line[:2])


async def test_a_dead_second_waiter_does_not_hide_the_offer_from_the_next_waiter(rig: Rig) -> None:
    holder = await rig.process()
    lease = await holder.lock("a").acquire()
    line = await waiters(rig, 3, ttl=TTL)
    die(rig, line[1:2])
    await lease.release()
    await line[0][1]
    await asyncio.sleep(TTL / 2)
    died = now()
    kill(rig, line[0][0])
    await (await line[2][1]).release()
    assert now() - died < TTL + GRACE + 2 * HAND_OVER
    await close(line[:2])


async def test_the_second_waiter_learns_of_renewals_with_few_requests_of_its_own(rig: Rig) -> None:
    holder = await rig.process(ttl=TTL)
    await holder.lock("a").acquire()
    line = await waiters(rig, 3)
    asked = line[1][0].questions()
    await asyncio.sleep(2 * REFRESH_EVERY)
    assert holder.redlock.stats().renewals >= 5
    assert [command.script.name for command in asked] == ["stand"] * len(asked)
    assert len(asked) <= 2 * 3, "its own looks are rare"
    for _, each in line:
        each.cancel()


async def test_a_stopped_first_waiter_does_not_hide_a_shorter_ttl_from_the_second_waiter(
    rig: Rig,
) -> None:
    holder = await rig.process()
    lease = await holder.lock("a", ttl=30, min_hold=1.0).acquire()
    line = await waiters(rig, 3)
    stopped = Stopped(line[0][0])
    await lease.release()
    released = now()
    await (await line[1][1]).release()
    assert now() - released < 1.0 + GRACE + 2 * HAND_OVER
    stopped.go_on()
    await (await line[2][1]).release()
    await (await line[0][1]).release()


async def test_a_stopped_first_waiter_does_not_hide_the_expiry_from_a_new_second_waiter(
    rig: Rig,
) -> None:
    holder = await rig.process(ttl=TTL)
    await holder.lock("a").acquire()
    line = await waiters(rig, 3)
    await asyncio.sleep(1)
    stopped = Stopped(line[1][0])
    line[0][1].cancel()
    await asyncio.sleep(1)
    died = now()
    kill(rig, holder)
    await (await line[2][1]).release()
    assert now() - died < TTL + 2 * GRACE + 2 * HAND_OVER
    stopped.go_on()
    await (await line[1][1]).release()
    await holder.redlock.aclose()


async def test_a_request_shows_a_waiter_that_it_is_the_first_after_all_before_it_died(
    rig: Rig,
) -> None:
    holder = await rig.process(ttl=TTL)
    await holder.lock("a").acquire()
    line = await waiters(rig, 4)
    die(rig, line[:3])
    await asyncio.sleep(longest(3))
    last = line[3][0]
    assert [place.rank for place in last.redlock.stats().queued] == [0]
    assert [len(queue) for queue in members(rig)] == [1, 1, 1]
    died = now()
    kill(rig, holder)
    await (await line[3][1]).release()
    assert now() - died < TTL + HAND_OVER
    await holder.redlock.aclose()
    await close(line[:3])


async def test_a_waiter_behind_processes_that_crash_again_and_again_is_the_second(rig: Rig) -> None:
    rig.occupy(KEY, ttl=600)
    first, *_ = await waiters(rig, 1)
    crashed: Line = []
    for _ in range(5):
        crashed += await waiters(rig, 1)
        die(rig, crashed[-1:])
    ((last, each),) = await waiters(rig, 1)
    assert [place.rank for place in last.redlock.stats().queued] == [1]
    each.cancel()
    first[1].cancel()
    await close(crashed)


@pytest.mark.parametrize("after", [15, 25, 45, 65])
async def test_a_release_wakes_the_last_waiter_however_long_the_others_have_been_dead(
    rig: Rig, after: int
) -> None:
    holder = await rig.process()
    lease = await holder.lock("a", ttl=60).acquire()
    line = await waiters(rig, 4)
    die(rig, line[:3])
    for _ in range(after):
        await asyncio.sleep(1)
        last = [queue[-1:] for queue in members(rig)]
        assert last[0], "no queue has expired"
        assert last == last[:1] * 3
    released = now()
    await lease.release()
    await (await line[3][1]).release()
    assert now() - released < HAND_OVER + 2 * WAY
    await close(line[:3])


async def test_a_waiter_without_messages_polls_at_every_rank(rig: Rig) -> None:
    rig.occupy(KEY, ttl=600)
    line = await waiters(rig, 3)
    silent = await silent_process(rig)
    each = waiting(silent)
    await asyncio.sleep(0.1)
    asked = silent.questions()
    await asyncio.sleep(2)
    assert len(asked) >= 3 * 20
    for future in (each, *(future for _, future in line)):
        future.cancel()


async def test_a_waiter_whose_queue_another_client_deleted_returns_to_it_within_five_minutes(
    rig: Rig,
) -> None:
    rig.occupy(KEY, ttl=6000)
    line = await waiters(rig, MOST_AHEAD + 4)
    for server in rig.servers:
        server.queues.clear()
    await asyncio.sleep(2 * longest(MOST_AHEAD))
    present = Counter(member for queue in members(rig) for member in queue)
    assert len(present) == len(line)
    # After two requests, each of one node, every waiter is in the queues of a quorum.
    assert min(present.values()) >= 2
    for _, each in line:
        each.cancel()


@pytest.mark.parametrize("gone", range(3))
async def test_the_first_waiter_makes_no_attempt_while_the_holder_renews_on_a_bare_majority(
    rig: Rig, gone: int
) -> None:
    holder, other = await rig.process(), await rig.process()
    lease = await holder.lock("a", ttl=1.0).acquire()
    waiter = asyncio.ensure_future(other.lock("a").acquire())
    await asyncio.sleep(0.4)
    # The holder may not set the key again on a node with a higher fence.
    server = rig.servers[gone]
    server.counters = dict.fromkeys(server.counters, 2**52)
    rig.vacate(b"a", on=[gone])
    await asyncio.sleep(1)
    asked = other.questions()
    await asyncio.sleep(8)
    assert holder.redlock.stats().renewals >= 8
    assert "acquire_guarded" not in {command.script.name for command in asked}
    await lease.release()
    await (await waiter).release()
