"""Elections when two things come in an odd order: no term goes on in silence, and none is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockLost, RedlockClosed
from aioredlock_ng._election.term import Term
from aioredlock_ng.events import LeaderChanged, RenewalSlow, SteppingDown
from tests.election.candidates import NAME, Candidate, Log, now, stop
from tests.support.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from aioredlock_ng.events import Event
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("stood_still", [2.5, 5.0], ids=["steps down", "is lost"])
async def test_a_term_whose_end_is_due_at_its_beginning_cancels_its_body(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, stood_still: float
) -> None:
    process, cancelled = await rig.process(ttl=3.0), list[float]()
    watch, jumps, loop = Term._watch, [stood_still], asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)

    def watched(term: Term) -> None:
        # The machine was suspended after the grant.
        if jumps:
            loop.advance(jumps.pop())
        watch(term)

    monkeypatch.setattr(Term, "_watch", watched)

    async def main(_: Lease) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(now())
            raise

    with pytest.raises(LockLost):
        await process.redlock.election(NAME, rejoin=False).run(main)
    assert cancelled


async def test_several_resignations_of_a_waiting_candidate_all_return(rig: Rig) -> None:
    ann, bob = [await rig.process() for _ in range(2)]
    leader = Candidate(ann.redlock.election(NAME), Log())
    await asyncio.sleep(1)
    waiting = Candidate(bob.redlock.election(NAME), Log())
    await asyncio.sleep(1)

    async def resign(ticks: int) -> bool:
        for _ in range(ticks):
            await asyncio.sleep(0)
        return await waiting.election.resign()

    assert await asyncio.gather(*map(resign, range(5))) == [False] * 5
    assert await waiting.task is None
    await stop(leader)


async def test_a_second_resignation_does_not_interrupt_the_clean_up_of_the_body(rig: Rig) -> None:
    election, cleaned = (await rig.process()).redlock.election(NAME), list[float]()

    async def main(_: Lease) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.5)
            cleaned.append(now())

    running = asyncio.create_task(election.run(main))
    await asyncio.sleep(1)
    first = asyncio.create_task(election.resign())
    await asyncio.sleep(0.1)
    assert await election.resign() is True
    assert len(cleaned) == 1
    assert await first is True
    assert await running is None


async def test_a_later_resignation_cancels_a_body_that_ignored_the_first_one(rig: Rig) -> None:
    election = (await rig.process()).redlock.election(NAME, step_down=2.0)

    async def main(_: Lease) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    running = asyncio.create_task(election.run(main))
    await asyncio.sleep(1)
    first = asyncio.create_task(election.resign())
    await asyncio.sleep(3)
    assert not first.done()
    async with asyncio.timeout(1):
        assert await election.resign() is True
    assert await first is True
    assert await running is None


async def test_a_resignation_cancels_a_body_that_resigned_and_works_on(rig: Rig) -> None:
    election = (await rig.process()).redlock.election(NAME)

    async def main(_: Lease) -> None:
        await election.resign()
        await asyncio.Event().wait()

    running = asyncio.create_task(election.run(main))
    await asyncio.sleep(1)
    async with asyncio.timeout(1):
        await election.resign()
    assert await running is None


async def test_a_max_hold_that_each_grant_uses_up_causes_no_storm_of_acquisitions(rig: Rig) -> None:
    rig.ways = [0.02] * 3
    process = await rig.process(ttl=10.0)
    candidate = Candidate(process.redlock.election(NAME, step_down=2.0, max_hold=2.03), Log())
    await asyncio.sleep(60)
    await stop(candidate)
    # The candidate pauses for at least half a ttl after each of them.
    assert process.redlock.stats().acquired <= 12


async def test_a_term_that_max_hold_ends_is_not_reported_as_unrenewed(rig: Rig) -> None:
    rig.ways = [0.08] * 3
    heard: list[Event] = []
    process = await rig.process(ttl=10.0, node_timeout=0.5, sinks=[heard.append])
    candidate = Candidate(process.redlock.election(NAME, max_hold=20.0, rejoin=False), Log())
    with pytest.raises(LockLost):
        await candidate.task
    assert [event.cause for event in heard if isinstance(event, SteppingDown)] == ["max_hold"]
    assert not any(isinstance(event, RenewalSlow) for event in heard)


async def test_the_end_of_an_outlived_term_does_not_hide_the_next_leader(rig: Rig) -> None:
    heard: list[Event] = []
    ann, bob = await rig.process(ttl=3.0, sinks=[heard.append]), await rig.process(ttl=3.0)
    election, labels = ann.redlock.election(NAME, label="ann"), list[str | None]()

    async def watch() -> None:
        async for leader in election.watch():
            labels.append(leader)

    watching = asyncio.create_task(watch())
    first = Candidate(election, Log(), last_words=20.0)
    await asyncio.sleep(1)
    second = Candidate(bob.redlock.election(NAME, label="bob"), Log())
    await asyncio.sleep(1)
    rig.vacate(NAME.encode())
    await asyncio.sleep(60)
    assert labels[-1] == "bob"
    assert election.leader == "bob"
    assert [event.leader for event in heard if isinstance(event, LeaderChanged)][-1] == "bob"
    watching.cancel()
    await asyncio.wait([watching])
    await stop(first, second)


async def test_a_candidate_in_a_pause_notices_the_close_within_a_second(rig: Rig) -> None:
    process = await rig.process(ttl=10.0)
    candidate = Candidate(process.redlock.election(NAME), Log())
    await asyncio.sleep(1)
    # The candidate loses its lease, and then pauses because waiting cures no such refusal.
    rig.refuse("NOPERM this user has no permissions", 0, 1, 2)
    await asyncio.sleep(14)
    await process.redlock.aclose()
    closed_at = now()
    with pytest.raises(RedlockClosed):
        await candidate.task
    assert now() - closed_at <= 1.0


async def test_a_main_that_resigns_and_returns_gives_its_result(rig: Rig) -> None:
    election = (await rig.process()).redlock.election(NAME)

    async def main(_: Lease) -> int:
        await election.resign()
        return 7

    assert await election.run(main) == 7
