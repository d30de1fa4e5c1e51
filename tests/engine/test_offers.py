"""A reserved key is not a held lock for operators, holders and other waiters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockLost
from aioredlock_ng._core.queue_formats import OFFER, claim_of, is_offer, member_of
from aioredlock_ng._engine.waiting.place import REFRESH_AFTER

if TYPE_CHECKING:
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time

OFFERED = OFFER + claim_of(5, member_of(b"0123456789abcdef", 1, 10.0, notified=True))


def offer(rig: Rig, key: bytes = b"a") -> None:
    for server in rig.servers:
        server.set(key, OFFERED, 10.0)


async def test_an_offer_is_not_shown_as_a_holder(rig: Rig) -> None:
    process = await rig.process()
    offer(rig)
    info = await process.redlock.inspect("a")
    assert (info.held, info.token, info.nodes, info.remaining, info.owner) == (
        False,
        None,
        0,
        0.0,
        None,
    )
    assert [(answer.token, answer.foreign) for answer in info.answers] == [(None, "")] * 3
    assert "0123456789abcdef" not in repr(info)
    assert not await process.redlock.locked("a")


async def test_inspect_shows_a_lock_that_any_node_offers_as_offered(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.servers[1].set(b"a", OFFERED, 10.0)
    info = await process.redlock.inspect("a")
    assert (info.offered, info.waiting) == (True, 0)
    assert [(answer.offered, answer.waiting) for answer in info.answers] == [
        (False, 0),
        (True, 1),
        (False, 0),
    ]
    offer(rig)
    info = await process.redlock.inspect("a")
    assert (info.held, info.offered, info.waiting) == (False, True, 1)
    assert [answer.remaining for answer in info.answers] == [pytest.approx(10.0, abs=0.1)] * 3
    # A majority has another token, so the offer of one node is outdated.
    rig.occupy(b"a", on=[0, 2])
    info = await process.redlock.inspect("a")
    assert (info.held, info.offered) == (True, False)


async def test_inspect_counts_waiters_on_the_nodes_that_answer(rig: Rig) -> None:
    holder, looking = await rig.process(), await rig.process()
    lease = await holder.lock("a").acquire()
    assert (await looking.redlock.inspect("a")).waiting == 0
    processes = [await rig.process() for _ in range(2)]
    # Two tasks of each process are one line, and a fair one is a line of its own.
    locks = [
        process.lock("a", **options)
        for process in processes
        for options in ({}, {}, {"fair": True})
    ]
    waiting = [asyncio.create_task(lock.acquire()) for lock in locks]
    await asyncio.sleep(1.0)
    assert (await looking.redlock.inspect("a")).waiting == 4
    # A node that lost its queue, or has one of the past, changes nothing.
    for left_over in (range(0), range(9)):
        rig.servers[0].queues.clear()
        for line in left_over:
            rig.servers[0].queues.add(b"a", claim_of(1, b"gone:%d" % line), 60.0)
        info = await looking.redlock.inspect("a")
        assert (info.waiting, info.answers[0].waiting) == (4, len(left_over))
    rig.hang(0)
    info = await looking.redlock.inspect("a")
    assert (info.waiting, info.answers[0].waiting) == (4, None)
    rig.resume(0)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert await lease.release()


async def test_a_forced_release_deletes_no_offer(rig: Rig) -> None:
    process = await rig.process()
    offer(rig)
    for any_key in (False, True):
        assert await process.redlock.force_release("a", any_key=any_key) == 0
    assert [server.get(b"a") for server in rig.servers] == [OFFERED] * 3


async def test_a_holder_whose_keys_became_offers_has_lost_its_lock(rig: Rig) -> None:
    process = await rig.process()
    lease = await process.lock("a").acquire()
    offer(rig)
    with pytest.raises(LockLost):
        await lease.verify()
    assert not await lease.release()
    assert [server.get(b"a") for server in rig.servers] == [OFFERED] * 3


async def test_a_first_attempt_is_refused_while_the_key_is_reserved_for_another_waiter(
    rig: Rig,
) -> None:
    process = await rig.process()
    offer(rig)
    assert await process.lock("a").try_acquire() is None
    assert [server.get(b"a") for server in rig.servers] == [OFFERED] * 3


async def test_stats_show_the_ticket_and_the_rank_of_each_place_and_ask_no_node(rig: Rig) -> None:
    holder = await rig.process()
    leases = [await holder.lock(name).acquire() for name in ("a", "b")]
    first, second = [await rig.process() for _ in range(2)]
    waiting = []
    for process, names in ((first, ["a"]), (second, ["a"]), (second, ["b", "a"])):
        waiting.append(asyncio.create_task(process.lock(*names).acquire()))
        await asyncio.sleep(0.5)
    asked = second.questions()
    (ahead,), (behind, of_set) = first.redlock.stats().queued, second.redlock.stats().queued
    assert second.redlock.stats().standing == 2
    assert asked == []
    assert (ahead.resource, behind.resource, of_set.resource) == ("a", "a", "a, b")
    assert (ahead.rank, behind.rank, of_set.rank) == (0, 1, 2)
    assert ahead.ticket < behind.ticket < of_set.ticket
    assert [ticket for ticket, _ in rig.servers[0].queues.members(b"a")] == [
        ahead.ticket,
        behind.ticket,
        of_set.ticket,
    ]
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    for lease in leases:
        await lease.release()
    assert second.redlock.stats().queued == ()


async def test_a_message_of_a_node_corrects_the_rank_before_the_next_request(rig: Rig) -> None:
    holder, process = await rig.process(), await rig.process()
    lease = await holder.lock("a").acquire()
    # It stands first, and takes nothing that it is offered.
    stopped = member_of(b"0123456789abcdef", 1, 5.0, notified=False)
    for server in rig.servers:
        server.queues.add(b"a", claim_of(1, stopped), 60.0)
    waiting = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0.1)
    assert [place.rank for place in process.redlock.stats().queued] == [1]
    asked = process.questions()
    assert await lease.release()
    await asyncio.sleep(REFRESH_AFTER / 2)
    assert [place.rank for place in process.redlock.stats().queued] == [0]
    assert asked == []
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_place_that_no_node_can_keep_has_a_ticket_and_no_rank(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, process = await rig.process(), await rig.process()
    lease = await holder.lock("a").acquire()
    # As on servers where the user has no right to the queue.
    for server in rig.servers:
        monkeypatch.setattr(server.queues, "add", lambda *_: None)
    waiting = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0.1)
    assert [(place.ticket, place.rank) for place in process.redlock.stats().queued] == [(1, None)]
    waiting.cancel()
    await asyncio.wait([waiting])
    assert await lease.release()


async def test_stats_count_the_lines_that_stand_in_queues(rig: Rig) -> None:
    holder, process = await rig.process(), await rig.process()
    leases = [await holder.lock(name).acquire() for name in ("a", "b")]
    assert process.redlock.stats().standing == 0
    waiting = [asyncio.create_task(process.lock(name).acquire()) for name in ("a", "a", "b")]
    await asyncio.sleep(0.1)
    stats = process.redlock.stats()
    assert (stats.waiting, stats.standing) == (3, 2)
    assert [len(server.queues.members(b"a")) for server in rig.servers] == [1, 1, 1]
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await asyncio.sleep(0.1)
    assert process.redlock.stats().standing == 0
    assert [server.queues.members(b"a") for server in rig.servers] == [[], [], []]
    for lease in leases:
        assert await lease.release()
    assert not any(is_offer(server.get(b"a") or b"") for server in rig.servers)
