"""`watch` yields each change of leader once, soon, and costs little while nothing changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import RedlockClosed
from aioredlock_ng.events import LeaderChanged
from tests.election.candidates import NAME, Candidate, Log, now, stop

if TYPE_CHECKING:
    from aioredlock_ng import Election, Lease
    from aioredlock_ng.events import Event
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time

KEY = NAME.encode()


class Watcher:
    """Records the values of `watch` and their times."""

    def __init__(self, election: Election) -> None:
        self.seen: list[str | None] = []
        self.at: list[float] = []
        self.task = asyncio.create_task(self._watch(election))

    async def _watch(self, election: Election) -> None:
        async for leader in election.watch():
            self.seen.append(leader)
            self.at.append(now())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def test_a_watcher_sees_the_present_leader_and_each_change(rig: Rig) -> None:
    ann, bob, eve = await rig.process(), await rig.process(), await rig.process()
    log = Log()
    election = eve.redlock.election(NAME, label="eve")
    watcher = Watcher(election)
    await asyncio.sleep(1)
    assert watcher.seen == [None]
    first = Candidate(ann.redlock.election(NAME, label="ann"), log)
    await asyncio.sleep(1)
    assert watcher.seen == [None, "ann"]
    assert watcher.at[-1] - log.lines[0][2] <= 0.2
    assert election.leader == "ann"
    assert not election.leading
    second = Candidate(bob.redlock.election(NAME, label="bob"), log)
    await asyncio.sleep(1)
    await stop(first)
    await asyncio.sleep(1)
    assert watcher.seen == [None, "ann", "bob"]
    await stop(second)
    await asyncio.sleep(1)
    assert watcher.seen == [None, "ann", "bob", None]
    assert watcher.at[-1] - log.lines[-1][2] <= 0.2
    await watcher.stop()


async def test_a_leader_that_died_is_seen_gone_when_its_lease_ends(rig: Rig) -> None:
    ann, eve = await rig.process(ttl=3.0), await rig.process(ttl=3.0)
    first = Candidate(ann.redlock.election(NAME, label="ann"), Log())
    watcher = Watcher(eve.redlock.election(NAME))
    await asyncio.sleep(20)
    assert watcher.seen[-1] == "ann"
    died = now()
    for node in ann.nodes:
        node.disconnect()
    await asyncio.sleep(5)
    assert watcher.seen[-2:] == ["ann", None]
    assert watcher.at[-1] - died <= 3.0 + 0.2
    await watcher.stop()
    await stop(first)


async def test_watchers_of_the_leaders_own_manager_see_the_same(rig: Rig) -> None:
    """Servers do not report to a connection the changes that it made itself."""
    process = await rig.process()
    log = Log()
    elections = [process.redlock.election(NAME, label=label) for label in ("ann", "bob", "eve")]
    watchers = [Watcher(election) for election in elections]
    await asyncio.sleep(1)
    first = Candidate(elections[0], log)
    await asyncio.sleep(1)
    second = Candidate(elections[1], log)
    await asyncio.sleep(1)
    await stop(first)
    await asyncio.sleep(1)
    await stop(second)
    await asyncio.sleep(1)
    for watcher in watchers:
        assert [label for label in watcher.seen if label] == ["ann", "bob"]
        assert (watcher.seen[0], watcher.seen[-1]) == (None, None)
        await watcher.stop()


async def test_a_lock_of_another_library_is_a_leader_without_a_label(rig: Rig) -> None:
    rig.occupy(KEY, 30.0)
    watcher = Watcher((await rig.process()).redlock.election(NAME))
    await asyncio.sleep(5)
    assert watcher.seen == ["?"]
    await asyncio.sleep(30)
    assert watcher.seen == ["?", None]
    await watcher.stop()


async def test_silent_nodes_are_no_change_of_leader(rig: Rig) -> None:
    ann, eve = await rig.process(ttl=3.0), await rig.process(ttl=3.0)
    candidate = Candidate(ann.redlock.election(NAME, label="ann"), Log())
    watcher = Watcher(eve.redlock.election(NAME))
    await asyncio.sleep(2)
    for node in eve.nodes:
        node.disconnect()
    await asyncio.sleep(60)
    assert watcher.seen[-1] == "ann"
    for node in eve.nodes:
        node.connect()
    await stop(candidate)
    await asyncio.sleep(5)
    assert watcher.seen[-2:] == ["ann", None]
    await watcher.stop()


async def test_an_answer_from_before_a_term_does_not_replace_the_leader_of_the_term(
    rig: Rig, events: list[Event]
) -> None:
    ann, bob = await rig.process(), await rig.process(sinks=[events.append])
    first = Candidate(ann.redlock.election(NAME, label="ann"), Log())
    await asyncio.sleep(1)
    second = Candidate(bob.redlock.election(NAME, label="bob"), Log())
    await asyncio.sleep(1)
    # The answer of the slow node completes the watcher's request after bob's term has begun.
    rig.ways[2] = 0.04
    watcher = Watcher(second.election)
    await asyncio.sleep(0.002)
    await stop(first)
    await asyncio.sleep(1)
    assert watcher.seen == ["bob"]
    await watcher.stop()
    await second.election.resign()
    assert second.election.leader is None
    assert [event.leader for event in events if isinstance(event, LeaderChanged)] == ["bob", None]


async def test_a_key_on_a_minority_of_nodes_is_no_leader_and_causes_no_polling(rig: Rig) -> None:
    rig.occupy(KEY, 3600.0, on=[1])
    process = await rig.process()
    asked, began = process.questions(), now()
    watcher = Watcher(process.redlock.election(NAME))
    await asyncio.sleep(30)
    assert watcher.seen == [None]
    assert watcher.at[0] - began <= 2.0
    assert len(asked) / 30 <= 2.0
    await watcher.stop()


async def test_a_leader_stays_known_while_a_silent_node_may_complete_its_majority(rig: Rig) -> None:
    ann, eve = await rig.process(), await rig.process()
    candidate = Candidate(ann.redlock.election(NAME, label="ann"), Log())
    watcher = Watcher(eve.redlock.election(NAME))
    await asyncio.sleep(2)
    rig.occupy(KEY, 3600.0, on=[1])
    eve.nodes[0].disconnect()
    asked = eve.questions()
    await asyncio.sleep(30)
    assert candidate.election.leading
    assert watcher.seen[-1] == "ann"
    assert len(asked) / 30 <= 2.0
    await watcher.stop()
    await stop(candidate)


@pytest.mark.parametrize("same_manager", [True, False])
async def test_a_watcher_sees_the_next_leader_while_a_body_that_resigned_works_on(
    rig: Rig, same_manager: bool
) -> None:
    ann, other = await rig.process(), await rig.process()
    election = ann.redlock.election(NAME, label="ann")
    bob = (ann if same_manager else other).redlock.election(NAME, label="bob")
    resigned = list[float]()

    async def main(_lease: Lease) -> None:
        await asyncio.sleep(2)
        await election.resign()
        resigned.append(now())
        assert election.leader is None
        await asyncio.sleep(20)

    running = asyncio.create_task(election.run(main))
    await asyncio.sleep(0.5)
    watcher = Watcher(election)
    await asyncio.sleep(0.5)
    second = Candidate(bob, Log())
    await running
    assert [leader for leader in watcher.seen if leader] == ["ann", "bob"]
    assert watcher.at[-1] - resigned[0] <= 0.2
    assert election.leader == "bob"
    await watcher.stop()
    await stop(second)


async def test_a_watcher_notices_a_dead_leader_while_a_body_that_resigned_works_on(
    rig: Rig,
) -> None:
    ann, bob = await rig.process(), await rig.process()
    election = ann.redlock.election(NAME, label="ann")

    async def main(_lease: Lease) -> None:
        await election.resign()
        await asyncio.sleep(60)

    running = asyncio.create_task(election.run(main))
    await asyncio.sleep(0.5)
    watcher = Watcher(election)
    lease = await bob.lock(NAME, owner="bob").acquire()
    await asyncio.sleep(1)
    died = now()
    lease.abandon()
    await asyncio.sleep(lease.ttl + 1)
    assert [leader for leader in watcher.seen if leader] == ["bob"]
    assert watcher.seen[-1] is None
    assert watcher.at[-1] - died <= lease.ttl + 0.2
    await watcher.stop()
    running.cancel()
    await asyncio.wait([running])


async def test_a_watcher_learns_that_its_manager_is_closed(rig: Rig) -> None:
    process = await rig.process()
    watcher = Watcher(process.redlock.election(NAME))
    await asyncio.sleep(0.5)
    await process.redlock.aclose()
    await asyncio.sleep(2)
    assert isinstance(watcher.task.exception(), RedlockClosed)


async def test_each_change_of_leader_is_one_event_of_an_election(
    rig: Rig, events: list[Event]
) -> None:
    ann, eve = await rig.process(), await rig.process(sinks=[events.append])
    election = eve.redlock.election(NAME)
    watchers = [Watcher(election) for _ in range(2)]
    candidate = Candidate(ann.redlock.election(NAME, label="ann"), Log())
    await asyncio.sleep(1)
    await stop(candidate)
    await asyncio.sleep(1)
    told = [event.leader for event in events if isinstance(event, LeaderChanged)]
    assert told == ["ann", None]
    for watcher in watchers:
        await watcher.stop()


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_fifty_candidates_send_only_queue_requests_and_renewals_of_the_leader(
    rig: Rig,
) -> None:
    """The bound holds from the start.

    A test of terms has the average over two of the rarest requests.
    """
    processes = [await rig.process() for _ in range(50)]
    log = Log()
    candidates = [
        Candidate(process.redlock.election(NAME, label=f"c{n}"), log)
        for n, process in enumerate(processes)
    ]
    await asyncio.sleep(20)
    questions = [process.questions() for process in processes]
    await asyncio.sleep(100)
    asked = [command.script.name for asked in questions for command in asked]
    assert set(asked) == {"stand", "extend", "watch"}
    assert len(asked) / 100 <= 5.0
    assert len(log.lines) == 1
    await stop(*candidates)


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_a_watcher_that_is_no_candidate_costs_less_than_two_commands_per_second(
    rig: Rig,
) -> None:
    ann, eve = await rig.process(), await rig.process()
    candidate = Candidate(ann.redlock.election(NAME, label="ann"), Log())
    watcher = Watcher(eve.redlock.election(NAME))
    await asyncio.sleep(20)
    questions = eve.questions()
    await asyncio.sleep(100)
    assert len(questions) / 100 <= 2.0
    await watcher.stop()
    await stop(candidate)
