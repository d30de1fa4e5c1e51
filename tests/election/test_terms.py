"""A term begins, ends in time, and ends once, however it ends."""

# ruff: noqa: PT012 - what is raised at the end of a body is the subject
from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import (
    ConfigurationError,
    LockHeld,
    LockLost,
    LockNotAcquired,
    LockReleased,
    QuorumUnreachable,
    RedlockClosed,
    RedlockError,
)
from aioredlock_ng.events import RenewalSlow, SteppingDown, TermBegan, TermEnded, TermOutlived
from tests.election.candidates import NAME, Candidate, Log, now, stop
from tests.support.rig import WAY

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from aioredlock_ng import Lease
    from aioredlock_ng.events import Event
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time

KEY = NAME.encode()
ROUND_TRIP = 2 * WAY


async def forever(_lease: Lease) -> None:
    await asyncio.Event().wait()


async def test_run_returns_the_result_of_main_and_releases_the_lock(rig: Rig) -> None:
    election = (await rig.process()).redlock.election(NAME, label="ann")

    async def main(lease: Lease) -> int:
        assert election.leading
        assert election.leader == "ann"
        assert lease.valid
        return 7

    assert await election.run(main) == 7
    assert not election.leading
    assert election.leader is None
    await asyncio.sleep(ROUND_TRIP)
    assert rig.clean


async def test_an_error_of_main_is_raised_after_the_release(rig: Rig) -> None:
    election = (await rig.process()).redlock.election(NAME)

    async def main(_lease: Lease) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await election.run(main)
    assert rig.clean


async def test_a_cancelled_leader_ends_its_body_before_it_releases(rig: Rig) -> None:
    """The release is not lost to the cancellation, and no work goes on behind it."""
    ann, bob = await rig.process(), await rig.process()
    log = Log()
    first = Candidate(ann.redlock.election(NAME, label="ann"), log, last_words=25.0)
    await asyncio.sleep(1)
    second = Candidate(bob.redlock.election(NAME, label="bob"), log)
    await asyncio.sleep(1)
    first.task.cancel()
    await asyncio.sleep(24.9)
    assert log.story == ["ann+"], "its lock is renewed while the shutdown is blocked"
    await asyncio.sleep(0.2)
    assert log.story == ["ann+", "ann-", "bob+"]
    assert first.task.cancelled()
    assert log.lines[2][2] - log.lines[1][2] <= 3 * ROUND_TRIP
    await stop(second)


async def test_a_leader_without_a_majority_ends_before_another_leader_begins(
    rig: Rig, events: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    ann = await rig.process(ttl=3.0, sinks=[events.append])
    log = Log()
    first = Candidate(ann.redlock.election(NAME, label="ann"), log)
    await asyncio.sleep(0.5)
    began = now()
    for node in ann.nodes:
        node.disconnect()
    bob = await rig.process(ttl=3.0)
    second = Candidate(bob.redlock.election(NAME, label="bob"), log)
    await asyncio.sleep(3.5)
    assert log.story == ["ann+", "ann-", "bob+"]
    assert log.most == 1
    stepped_down, led = log.lines[1][2], log.lines[2][2]
    assert led - stepped_down >= 0.9, "a third of the ttl lies between"
    assert stepped_down - began <= 2.1
    assert [
        type(event)
        for event in events
        if isinstance(event, RenewalSlow | SteppingDown | TermOutlived)
    ] == [
        RenewalSlow,
        SteppingDown,
    ]
    assert [event.cause for event in events if isinstance(event, SteppingDown)] == ["unrenewed"]
    [step] = [record for record in caplog.records if "steps down" in record.message]
    assert step.levelname == "WARNING"
    assert "its lease was not renewed" in step.message
    await stop(first, second)


async def test_a_leader_stands_again_after_it_lost_the_lead(rig: Rig) -> None:
    ann, bob = await rig.process(ttl=1.0), await rig.process(ttl=1.0)
    log = Log()
    first = Candidate(ann.redlock.election(NAME, label="ann"), log)
    await asyncio.sleep(0.5)
    second = Candidate(bob.redlock.election(NAME, label="bob"), log)
    for _ in range(3):
        await asyncio.sleep(0.5)
        await bob.redlock.force_release(NAME)
    await asyncio.sleep(1.5)
    assert [label for label, sign, _ in log.lines if sign == "+"] == ["ann", "bob", "ann", "bob"]
    assert first.fences[0] < second.fences[0] < first.fences[1] < second.fences[1]
    await stop(first, second)


@pytest.mark.parametrize("how", ["taken", "unrenewed"])
async def test_without_rejoin_the_end_of_a_term_is_an_error(rig: Rig, how: str) -> None:
    process = await rig.process(ttl=1.0)
    election = process.redlock.election(NAME, rejoin=False)
    running = asyncio.create_task(election.run(forever))
    await asyncio.sleep(0.2)
    if how == "taken":
        await process.redlock.force_release(NAME)
    else:
        rig.hang(0, 1)
    with pytest.raises(LockLost) as caught:
        await running
    assert ("stepped down" in str(caught.value)) is (how == "unrenewed")
    assert caught.value.resource == NAME


async def test_the_next_leaders_lock_survives_a_late_release(rig: Rig) -> None:
    ann, bob = await rig.process(ttl=1.0), await rig.process(ttl=1.0)
    log = Log()
    first = Candidate(ann.redlock.election(NAME, label="ann"), log)
    await asyncio.sleep(0.3)
    # Its later requests arrive late.
    for node in ann.nodes:
        node.hang()
    await asyncio.sleep(0.3)
    second = Candidate(bob.redlock.election(NAME, label="bob"), log)
    await asyncio.sleep(2)
    assert log.story == ["ann+", "ann-", "bob+"]
    token = bob.redlock.leases[0].token.encode()
    for node in ann.nodes:
        node.resume()
    await asyncio.sleep(1)
    assert rig.values(KEY) == [token] * 3
    assert log.story == ["ann+", "ann-", "bob+"]
    await stop(first, second)


async def test_a_body_that_outlives_its_term_is_an_error_and_fails_the_probe(
    rig: Rig, events: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    process = await rig.process(ttl=1.0, sinks=[events.append])
    election = process.redlock.election(NAME)
    free = asyncio.Event()

    async def stubborn(_lease: Lease) -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                assert not election.leading

    election.check()
    running = asyncio.create_task(election.run(stubborn))
    await asyncio.sleep(0.2)
    election.check()
    rig.hang(0, 1)
    await asyncio.sleep(0.75)
    election.check()
    assert not election.leading
    await asyncio.sleep(0.5)
    with pytest.raises(LockLost):
        election.check()
    [outlived] = [event for event in events if isinstance(event, TermOutlived)]
    assert outlived.resource == NAME
    assert [record.levelname for record in caplog.records if "has worked" in record.message] == [
        "ERROR"
    ]
    free.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    election.check()
    rig.resume()
    running.cancel()
    await asyncio.wait([running])


async def test_a_body_that_swallows_its_cancellation_keeps_the_lock_but_does_not_lead(
    rig: Rig,
) -> None:
    """As with `asyncio.timeout`, the body is not cancelled again while the lease is held."""
    process = await rig.process(ttl=1.0)
    election = process.redlock.election(NAME, rejoin=False)

    async def stubborn(lease: Lease) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await forever(lease)
        rig.resume()
        await asyncio.sleep(5.0)
        assert lease.valid
        assert not election.leading
        election.check()

    running = asyncio.create_task(election.run(stubborn))
    await asyncio.sleep(0.2)
    rig.hang(0, 1)
    with pytest.raises(LockLost, match="stepped down"):
        await running


async def test_a_loop_that_stood_still_ends_the_term_at_the_first_await(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    election = process.redlock.election(NAME, rejoin=False)
    worked: list[float] = []

    async def main(lease: Lease) -> None:
        await asyncio.sleep(0.1)
        asyncio.get_running_loop().advance(5.0)  # type: ignore[attr-defined]
        assert not election.leading
        assert not lease.valid
        with pytest.raises(LockLost):
            election.check()
        await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        worked.append(now())

    with pytest.raises(LockLost, match="stood still"):
        await election.run(main)
    assert worked == []


async def test_a_term_by_hand_is_one_async_with(rig: Rig) -> None:
    election = (await rig.process()).redlock.election(NAME, label="ann")
    async with election as lease:
        assert election.leading
        assert lease.resource == NAME
        with pytest.raises(RedlockError, match="stands or leads already"):
            await election.run(forever)
    assert not election.leading
    async with election:
        pass
    assert rig.clean


async def test_a_term_by_hand_that_is_not_renewed_raises_lock_lost(rig: Rig) -> None:
    election = (await rig.process(ttl=1.0)).redlock.election(NAME)
    with pytest.raises(LockLost, match="stepped down") as caught:
        async with election:
            rig.hang(0, 1)
            await asyncio.sleep(5)
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_resign_ends_the_body_and_lets_the_next_candidate_lead(rig: Rig) -> None:
    ann, bob = await rig.process(), await rig.process()
    log = Log()
    first = Candidate(ann.redlock.election(NAME, label="ann"), log, last_words=1.0)
    await asyncio.sleep(0.5)
    second = Candidate(bob.redlock.election(NAME, label="bob"), log)
    await asyncio.sleep(0.5)
    assert await first.election.resign() is True
    assert log.story == ["ann+", "ann-"]
    assert await first.task is None
    await asyncio.sleep(3 * ROUND_TRIP)
    assert log.story == ["ann+", "ann-", "bob+"]
    assert await first.election.resign() is False
    await stop(second)


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_the_next_candidate_leads_two_round_trips_after_a_resignation(rig: Rig) -> None:
    ann, bob = await rig.process(), await rig.process()
    log = Log()
    first = Candidate(ann.redlock.election(NAME, label="ann"), log)
    await asyncio.sleep(1.0)
    second = Candidate(bob.redlock.election(NAME, label="bob"), log)
    await asyncio.sleep(1.0)
    resigned, asked = now(), bob.questions()
    assert await first.election.resign() is True
    await asyncio.sleep(3 * ROUND_TRIP)
    assert [command.script.name for command in asked] == ["acquire_guarded"] * 5
    assert log.story == ["ann+", "ann-", "bob+"]
    # The message of a memory node takes no time.
    assert log.lines[-1][2] - resigned <= 2 * ROUND_TRIP - WAY + 1e-9
    await stop(second)


@pytest.mark.slow
@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_fifty_candidates_cost_five_commands_per_second_on_five_nodes_together(
    rig: Rig,
) -> None:
    processes = [await rig.process(ttl=10.0) for _ in range(50)]
    candidates = [
        Candidate(process.redlock.election(NAME, label=str(n)), Log())
        for n, process in enumerate(processes)
    ]
    await asyncio.sleep(10.0)
    asked = [process.questions() for process in processes]
    # Two of the rarest requests.
    await asyncio.sleep(620.0)
    assert sum(map(len, asked)) / 620.0 <= 5.0
    await stop(*candidates)


async def test_resign_stops_the_wait_of_a_candidate(rig: Rig) -> None:
    ann, bob = await rig.process(), await rig.process()
    lease = await ann.lock(NAME).acquire()
    running = bob.redlock.election(NAME)
    task = asyncio.create_task(running.run(forever))
    by_hand = bob.redlock.election(NAME)
    entering = asyncio.create_task(by_hand.__aenter__())
    await asyncio.sleep(0.1)
    assert await running.resign() is False
    assert await task is None
    assert await by_hand.resign() is False
    with pytest.raises(LockNotAcquired, match="resigned"):
        await entering
    assert bob.redlock.stats().waiting == 0
    await lease.release()


async def test_a_body_that_resigns_itself_has_released_the_lock(rig: Rig) -> None:
    election = (await rig.process()).redlock.election(NAME)

    async def main(_lease: Lease) -> str:
        assert await election.resign() is True
        assert rig.clean
        assert not election.leading
        return "done"

    assert await election.run(main) == "done"


async def test_another_tasks_resignation_is_an_error_of_a_term_by_hand(rig: Rig) -> None:
    election = (await rig.process()).redlock.election(NAME)
    with pytest.raises(LockReleased, match="resigned"):
        async with election:
            resigning = asyncio.create_task(election.resign())
            await asyncio.sleep(1)
    assert await resigning is True


@pytest.mark.parametrize("how", ["lost", "resigned"])
async def test_a_term_in_a_generator_that_ends_early_is_an_error_of_its_reader(
    rig: Rig, how: str
) -> None:
    """The end of the term cancels the reader, whose `aclose` ends the block by GeneratorExit."""
    election = (await rig.process()).redlock.election(NAME)

    async def terms() -> AsyncGenerator[Lease]:
        async with election as lease:
            yield lease

    async def read() -> None:
        async with contextlib.aclosing(terms()) as leases:
            async for lease in leases:
                assert lease.valid
                await asyncio.sleep(60)

    reader = asyncio.create_task(read())
    await asyncio.sleep(0.1)
    if how == "resigned":
        await election.resign()
    else:
        rig.vacate(KEY)
    await asyncio.wait([reader])
    assert not reader.cancelled()
    assert isinstance(reader.exception(), LockLost if how == "lost" else LockReleased)


async def test_a_call_of_run_that_is_closed_does_not_stand_again(rig: Rig) -> None:
    election = (await rig.process()).redlock.election(NAME)
    standing = election.run(forever)
    leader = asyncio.create_task(standing)
    await asyncio.sleep(0.1)
    term = election.candidacy.term
    assert term is not None
    asyncio.get_running_loop().advance(20)  # type: ignore[attr-defined]
    # As at the end of the process. The loss is found now, and nothing is awaited for it.
    standing.close()
    assert term.lease.lost
    assert not election.leading
    leader.cancel()
    with pytest.raises(RuntimeError, match="already awaited"):
        await leader


async def test_a_lost_term_seen_in_a_task_group_stands_again(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)
    terms: list[int] = []

    async def checks(lease: Lease) -> None:
        while True:
            try:
                await asyncio.sleep(0.01)
            finally:
                lease.check()

    async def main(lease: Lease) -> None:
        terms.append(lease.fence)
        async with asyncio.TaskGroup() as group:
            group.create_task(checks(lease))

    running = asyncio.create_task(process.redlock.election(NAME).run(main))
    for _ in range(3):
        await asyncio.sleep(0.5)
        await process.redlock.force_release(NAME)
    await asyncio.sleep(0.5)
    assert len(terms) == 4
    running.cancel()
    await asyncio.wait([running])


async def test_an_error_of_main_wins_over_the_loss_with_a_note(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)

    async def main(lease: Lease) -> None:
        try:
            await lease.wait_lost()
        finally:
            raise ValueError("clean-up")

    running = asyncio.create_task(process.redlock.election(NAME).run(main))
    await asyncio.sleep(0.3)
    await process.redlock.force_release(NAME)
    with pytest.raises(ValueError, match="clean-up") as caught:
        await running
    assert "was lost" in caught.value.__notes__[0]


async def test_the_loss_of_another_lock_is_an_error_of_main(rig: Rig) -> None:
    process = await rig.process(ttl=1.0)

    async def main(_lease: Lease) -> None:
        async with process.lock("other"):
            await asyncio.sleep(5)

    running = asyncio.create_task(process.redlock.election(NAME).run(main))
    await asyncio.sleep(0.3)
    await process.redlock.force_release("other")
    with pytest.raises(LockLost, match="other"):
        await running


async def test_max_hold_passes_the_lead_around_without_a_warning(
    rig: Rig, events: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    processes = [await rig.process(ttl=1.0, sinks=[events.append]) for _ in range(2)]
    log = Log()
    candidates = [
        Candidate(process.redlock.election(NAME, label=label, max_hold=5.0), log)
        for process, label in zip(processes, ("ann", "bob"), strict=True)
    ]
    await asyncio.sleep(15)
    assert log.story[:6] in (
        ["ann+", "ann-", "bob+", "bob-", "ann+", "ann-"],
        ["bob+", "bob-", "ann+", "ann-", "bob+", "bob-"],
    )
    assert log.most == 1
    assert not [event for event in events if isinstance(event, RenewalSlow)]
    assert {event.cause for event in events if isinstance(event, SteppingDown)} == {"max_hold"}
    steps = [record for record in caplog.records if "steps down" in record.message]
    assert {record.levelname for record in steps} == {"INFO"}
    assert all("not renewed" not in record.message for record in steps)
    await stop(*candidates)


async def test_a_closed_manager_ends_the_term_and_the_run(rig: Rig) -> None:
    process = await rig.process()
    running = asyncio.create_task(process.redlock.election(NAME).run(forever))
    await asyncio.sleep(0.5)
    await process.redlock.aclose()
    with pytest.raises(RedlockClosed):
        await running


async def test_no_leader_begins_while_the_body_of_a_closed_manager_cleans_up(
    rig: Rig, events: list[Event]
) -> None:
    ann, bob = [await rig.process(ttl=3.0, sinks=[events.append]) for _ in range(2)]
    log = Log()
    first = Candidate(ann.redlock.election(NAME, label="ann"), log, last_words=1.0)
    await asyncio.sleep(0.5)
    second = Candidate(bob.redlock.election(NAME, label="bob"), log)
    await asyncio.sleep(0.5)
    closed = now()
    await ann.redlock.aclose()
    with pytest.raises(RedlockClosed):
        await first.task
    await asyncio.sleep(4)
    assert log.story == ["ann+", "ann-", "bob+"]
    assert log.lines[1][2] - closed == pytest.approx(1.0, abs=0.1)
    assert log.lines[2][2] - closed <= 3.0, "the lock expires"
    assert not [event for event in events if isinstance(event, TermOutlived)]
    await stop(second)


async def test_a_clean_up_that_outlives_the_lease_of_a_closed_manager_is_reported(
    rig: Rig, events: list[Event]
) -> None:
    process = await rig.process(ttl=1.0, sinks=[events.append])
    candidate = Candidate(process.redlock.election(NAME, label="ann"), Log(), last_words=3.0)
    await asyncio.sleep(0.5)
    await process.redlock.aclose()
    with pytest.raises(RedlockClosed):
        await candidate.task
    [outlived] = [event for event in events if isinstance(event, TermOutlived)]
    assert outlived.over_for == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("how", ["resign", "release"])
async def test_a_body_that_works_on_after_it_gave_up_the_lead_has_not_outlived_its_term(
    rig: Rig, events: list[Event], how: str
) -> None:
    process = await rig.process(ttl=1.0, sinks=[events.append])
    election = process.redlock.election(NAME)
    async with election as lease:
        await (election.resign() if how == "resign" else lease.release())
        await asyncio.sleep(3)
    assert not [event for event in events if isinstance(event, TermOutlived)]


@pytest.mark.parametrize("ends", ["by itself", "at its next await"])
async def test_a_body_that_blocked_its_loop_beyond_the_lease_is_reported_as_outlived(
    rig: Rig, events: list[Event], ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    process = await rig.process(ttl=1.0, sinks=[events.append])

    async def blocked(_lease: Lease) -> None:
        asyncio.get_running_loop().advance(4.0)  # type: ignore[attr-defined]
        if ends != "by itself":
            await asyncio.sleep(1)

    with pytest.raises(LockLost):
        await process.redlock.election(NAME, rejoin=False).run(blocked)
    await asyncio.sleep(1)
    [outlived] = [event for event in events if isinstance(event, TermOutlived)]
    assert outlived.over_for == pytest.approx(3.0, abs=0.1)
    assert "still works" not in caplog.text, "the body may have ended before the report"
    assert "has worked 3." in caplog.text


@pytest.mark.parametrize("then", ["ends", "goes on"])
async def test_a_clean_up_that_blocks_its_loop_after_the_loss_is_reported_as_outlived(
    rig: Rig, events: list[Event], then: str
) -> None:
    process = await rig.process(ttl=1.0, sinks=[events.append])

    async def main(_lease: Lease) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().advance(4.0)  # type: ignore[attr-defined]
            if then == "goes on":
                await asyncio.sleep(1)

    asyncio.get_running_loop().call_later(0.3, rig.vacate, KEY)
    with pytest.raises(LockLost):
        await process.redlock.election(NAME, rejoin=False).run(main)
    await asyncio.sleep(1)
    [outlived] = [event for event in events if isinstance(event, TermOutlived)]
    assert outlived.over_for == pytest.approx(4.0, abs=0.1)


@pytest.mark.parametrize("finds", ["extend", "check"])
async def test_a_body_that_works_on_after_its_own_call_found_the_loss_is_reported(
    rig: Rig, events: list[Event], finds: str
) -> None:
    process = await rig.process(ttl=3.0, sinks=[events.append])

    async def main(lease: Lease) -> None:
        await asyncio.sleep(0.2)
        rig.vacate(KEY)
        with pytest.raises(LockLost):
            if finds == "check":
                asyncio.get_running_loop().advance(4.0)  # type: ignore[attr-defined]
                lease.check()
            await getattr(lease, finds)()
        await asyncio.sleep(2)

    with pytest.raises(LockLost):
        await process.redlock.election(NAME, rejoin=False).run(main)
    await asyncio.sleep(1)
    assert len([event for event in events if isinstance(event, TermOutlived)]) == 1


async def test_a_refusal_that_waiting_does_not_cure_is_raised_before_the_first_term_only(
    rig: Rig,
) -> None:
    process = await rig.process(ttl=1.0)
    log = Log()
    rig.refuse("NOPERM no rights", 0, 1, 2)
    with pytest.raises(QuorumUnreachable):
        await process.redlock.election(NAME).run(forever)
    rig.refuse(None, 0, 1, 2)
    candidate = Candidate(process.redlock.election(NAME, label="ann"), log)
    await asyncio.sleep(0.3)
    rig.refuse("NOPERM no rights", 0, 1, 2)
    await asyncio.sleep(10)
    assert not candidate.task.done()
    rig.refuse(None, 0, 1, 2)
    await asyncio.sleep(2)
    assert log.story == ["ann+", "ann-", "ann+"]
    await stop(candidate)


async def test_a_task_that_holds_the_lock_itself_does_not_wait_for_itself(rig: Rig) -> None:
    process = await rig.process()
    async with process.lock(NAME):
        with pytest.raises(LockHeld):
            await process.redlock.election(NAME).run(forever)


async def test_a_term_does_not_begin_with_less_than_the_margin(rig: Rig) -> None:
    """The loop stood still between the grant and the first step of the candidate."""
    process = await rig.process(ttl=1.0)
    log = Log()
    loop = asyncio.get_running_loop()
    loop.call_later(ROUND_TRIP, lambda: loop.advance(0.8))  # type: ignore[attr-defined]
    candidate = Candidate(process.redlock.election(NAME, label="ann"), log)
    await asyncio.sleep(1.5)
    assert log.story == ["ann+"]
    assert process.redlock.stats().acquired == 2
    assert process.redlock.leases[0].remaining() > 1 / 3
    await stop(candidate)


async def test_the_events_of_a_term_name_the_cause_of_its_end(
    rig: Rig, events: list[Event]
) -> None:
    process = await rig.process(ttl=1.0, sinks=[events.append])
    election = process.redlock.election(NAME, label="ann", rejoin=False)

    def ended() -> str:
        told = [event for event in events if isinstance(event, TermBegan | TermEnded)]
        events.clear()
        began, end = told
        assert isinstance(began, TermBegan)
        assert isinstance(end, TermEnded)
        assert (began.label, began.fence, began.resource) == ("ann", end.fence, NAME)
        return end.cause

    async def done(_lease: Lease) -> None:
        await asyncio.sleep(0.1)

    async def fails(_lease: Lease) -> None:
        raise ValueError

    await election.run(done)
    assert ended() == "done"
    with pytest.raises(ValueError):  # noqa: PT011
        await election.run(fails)
    assert ended() == "failed"
    running = asyncio.create_task(election.run(forever))
    await asyncio.sleep(0.1)
    running.cancel()
    await asyncio.wait([running])
    assert ended() == "cancelled"
    running = asyncio.create_task(election.run(forever))
    await asyncio.sleep(0.1)
    await election.resign()
    assert ended() == "resigned"
    running = asyncio.create_task(election.run(forever))
    await asyncio.sleep(0.3)
    await process.redlock.force_release(NAME)
    with pytest.raises(LockLost):
        await running
    assert ended() == "lost"
    running = asyncio.create_task(election.run(forever))
    await asyncio.sleep(0.3)
    rig.hang(0, 1)
    with pytest.raises(LockLost):
        await running
    assert ended() == "step_down"
    rig.resume()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"label": ""}, "label must be one line"),
    ({"label": 3}, "label must be a str"),
    ({"label": "x" * 201}, "label must have at most 200 bytes"),
    ({"ttl": 0}, "ttl must be"),
    ({"ttl": 0.25}, "ttl=0.25 is too short for an election.*raise ttl"),
    ({"ttl": 61}, "above max_ttl"),
    ({"step_down": 0}, "step_down must be"),
    ({"step_down": "1"}, "step_down must be a number"),
    ({"ttl": 3, "step_down": 2}, "step_down=2 is too long.*raise ttl or lower step_down"),
    ({"max_hold": -1}, "max_hold must be"),
    ({"max_hold": 1}, "max_hold=1 must be more than step_down"),
    ({"rejoin": 1}, "rejoin must be True or False"),
]


@pytest.mark.parametrize(("options", "words"), BAD, ids=[str(options) for options, _ in BAD])
async def test_an_unusable_argument_is_named_with_its_remedy_before_any_io(
    rig: Rig, options: dict[str, Any], words: str
) -> None:
    redlock = rig.new_process().redlock
    with pytest.raises(ConfigurationError, match=words):
        redlock.election(NAME, **options)


async def test_a_manager_without_labels_has_no_elections(rig: Rig) -> None:
    for options in ({"owner": False}, {"fencing": False, "recovery_guard": None}):
        with pytest.raises(ConfigurationError, match=r"election.* needs labels"):
            rig.new_process(**options).redlock.election(NAME)


async def test_an_election_refuses_a_main_that_is_not_callable(rig: Rig) -> None:
    election = (await rig.process()).redlock.election(NAME)
    with pytest.raises(ConfigurationError, match="main must be"):
        await election.run("forever")  # type: ignore[arg-type]


async def test_an_election_refuses_a_main_whose_result_cannot_be_awaited(rig: Rig) -> None:
    process = await rig.process()

    def plain(lease: Lease) -> int:
        return lease.fence

    async def generator(lease: Lease) -> AsyncIterator[int]:
        yield lease.fence

    for main, kind in ((plain, "int"), (generator, "async_generator")):
        with pytest.raises(
            ConfigurationError, match=f"^main must be a coroutine function .* returned .*{kind}"
        ):
            await process.redlock.election(NAME).run(main)  # type: ignore[arg-type]
        assert not process.redlock.leases


async def test_an_election_needs_an_open_manager(rig: Rig) -> None:
    with pytest.raises(RedlockClosed):
        await rig.new_process().redlock.election(NAME).run(forever)


async def test_the_label_is_the_managers_or_host_and_process(rig: Rig) -> None:
    assert rig.new_process(owner="shop").redlock.election(NAME).label == "shop"
    assert ":" in rig.new_process().redlock.election(NAME).label
    election = rig.new_process().redlock.election(NAME, label="ann", ttl=6.0)
    assert (election.name, election.ttl, election.step_down) == (NAME, 6.0, 2.0)
    assert repr(election) == "<Election 'scheduler' 'ann' idle>"
