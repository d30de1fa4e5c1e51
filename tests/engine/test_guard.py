"""Nodes that forgot: none of them helps a second holder in, a new set waits for nothing, a lost
minority is repaired.
"""

from __future__ import annotations

import asyncio
import re
import sys
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import QuorumUnreachable
from aioredlock_ng._core.votes import Outcome
from aioredlock_ng._scripts.catalogue import MARKER
from aioredlock_ng._scripts.exclusive_kinds import MARKER_KEY
from aioredlock_ng.events import AllNodesForgot, NodeQuarantined, NodeTrusted
from tests.support.rig import WAY

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._nodes.memory import Connection
    from aioredlock_ng._scripts import Command
    from aioredlock_ng.events import Event
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time

GUARD = 5.0
"""Seconds of `max_ttl` in these tests; a node waits one more."""


def now() -> float:
    return asyncio.get_running_loop().time()


def states(redlock: Any) -> list[str]:
    return [node.state for node in redlock.nodes]


async def test_a_new_set_waits_for_nothing(rig: Rig) -> None:
    before = now()
    process = await rig.process()
    assert await process.lock("a", blocking_timeout=0).acquire()
    assert now() - before < 0.05
    assert states(process.redlock) == ["up"] * 3


async def test_twenty_processes_found_a_set_at_one_moment_and_its_last_server_a_second_later(
    rig: Rig,
) -> None:
    rig.stop(2)
    processes = [rig.new_process() for _ in range(20)]
    await asyncio.gather(*(process.redlock.open() for process in processes))
    await asyncio.sleep(1)
    before = now()
    rig.start(2)
    async with asyncio.timeout(60):
        for process in processes:
            async with process.lock("a"):
                pass
    assert now() - before < 2


async def test_a_founding_set_waits_the_guard_time_for_a_missing_node_and_names_it(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.stop(2)
    process = await rig.process(max_ttl=GUARD, ttl=2.0)
    new = "new set: the nodes vote when memory-2 is up too (not connected), or in 6 s"
    with pytest.raises(QuorumUnreachable, match=re.escape(new)) as error:
        await process.lock("a", blocking_timeout=0).acquire()
    assert Outcome.QUARANTINED in [vote.outcome for vote in error.value.votes]
    assert states(process.redlock)[:2] == ["quarantined"] * 2
    reasons = [node.reason for node in process.redlock.nodes][:2]
    said = [*reasons, *caplog.messages, str(error.value)]
    assert reasons == [new] * 2
    assert sum(new in line for line in caplog.messages if line.startswith("node ")) == 2
    assert not [line for line in said if "forgot" in line or "recovery_guard" in line]
    before = now()
    async with process.lock("a"):
        assert GUARD <= now() - before <= GUARD + 2.5


async def test_a_founding_set_waits_no_longer_although_the_clocks_of_its_nodes_are_set_back(
    rig: Rig,
) -> None:
    rig.stop(2)
    ahead = 3600.0
    loop = asyncio.get_running_loop()
    for server in rig.servers[:2]:
        server._clock = lambda: loop.time() + ahead
    process = await rig.process(max_ttl=GUARD, ttl=2.0)
    before = now()
    ahead = 0.0
    async with asyncio.timeout(60), process.lock("a"):
        assert GUARD <= now() - before <= GUARD + 3


@pytest.mark.parametrize("how", ["flush", "restart"])
async def test_a_node_that_forgot_grants_nothing_for_the_guard_time(rig: Rig, how: str) -> None:
    process, other = [await rig.process(max_ttl=GUARD, ttl=4.0) for _ in range(2)]
    rig.hang(2)
    lease = await process.lock("a", auto_extend=False).acquire()
    # A younger key could be that of a rival, and `try_acquire` would ask again.
    await asyncio.sleep(0.5)
    rig.resume()
    rig.vacate(b"a", on=[2])
    for server in rig.servers[:1]:
        server.flush() if how == "flush" else server.restart()
    assert await other.lock("a").try_acquire() is None, (
        "two nodes have no key, but one of them may have forgotten it"
    )
    before = now()
    await lease.wait_lost()
    # The rest of it is being released by another connection than that of the next request.
    await asyncio.sleep(4 * WAY)
    assert await other.lock("a", blocking_timeout=0).acquire(), "the other two are a quorum"
    rig.hang(1)
    with pytest.raises(QuorumUnreachable):
        await other.lock("b", blocking_timeout=0).acquire()
    await other.lock("b").acquire()
    assert GUARD - 4.0 <= now() - before <= GUARD + 3


async def test_a_restart_that_kept_the_memory_waits_too(rig: Rig) -> None:
    process = await rig.process(max_ttl=GUARD, ttl=2.0)
    rig.servers[0].restart(forget=False)
    rig.hang(1)
    with pytest.raises(QuorumUnreachable):
        await process.lock("a", blocking_timeout=0).acquire()
    await asyncio.sleep(0.2)
    assert states(process.redlock)[0] == "quarantined"
    await asyncio.sleep(GUARD + 2)
    assert states(process.redlock)[0] == "up"
    assert await process.lock("a", blocking_timeout=0).acquire()


async def test_without_the_guard_a_node_that_forgot_grants_at_once(rig: Rig) -> None:
    process = await rig.process(recovery_guard=None)
    rig.hang(2)
    rig.servers[0].restart()
    assert await process.lock("a", blocking_timeout=0).acquire()


async def test_strict_lets_a_new_set_wait_too(rig: Rig) -> None:
    process = await rig.process(recovery_guard="strict", max_ttl=GUARD, ttl=2.0)
    with pytest.raises(QuorumUnreachable):
        await process.lock("a", blocking_timeout=0).acquire()
    before = now()
    assert await process.lock("a").acquire()
    assert GUARD <= now() - before <= GUARD + 2.5


async def test_a_longer_max_ttl_is_written_to_the_nodes_before_they_vote_for_it(rig: Rig) -> None:
    short = await rig.process(max_ttl=GUARD, ttl=2.0)
    long = await rig.process(max_ttl=600.0)
    async with long.lock("a"):
        pass
    markers = [server.get(b"aioredlock_ng:marker") or b"" for server in rig.servers]
    assert all(b":600000" in marker for marker in markers)
    async with short.lock("a"):
        pass
    rig.servers[0].flush()
    await asyncio.sleep(GUARD + 3)
    assert states(short.redlock)[0] == "quarantined", "the longest guard time of all holds"


@pytest.mark.parametrize("rig", [5], indirect=True)
async def test_a_lock_that_is_deleted_on_one_node_after_the_other_is_lost_with_its_majority(
    rig: Rig,
) -> None:
    """A key that was set again in between would be on two nodes and missing on two.

    The slow node would have to decide.
    """
    process = await rig.process(ttl=3.0)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.2)
    rig.ways[4] = 0.04
    for index in range(3):
        await asyncio.sleep(0.005)
        rig.vacate(b"a", on=[index])
    gone = asyncio.get_running_loop().time()
    for index in (3, 4):
        await asyncio.sleep(0.001)
        rig.vacate(b"a", on=[index])
    await lease.wait_lost()
    assert lease.lost
    assert asyncio.get_running_loop().time() - gone < 0.01
    await asyncio.sleep(1)
    assert rig.values(b"a") == [None] * 5


async def test_a_lost_minority_is_repaired_soon(rig: Rig) -> None:
    process = await rig.process(ttl=3.0)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.2)
    rig.vacate(b"a", on=[1])
    await asyncio.sleep(0.1)
    assert rig.values(b"a") == [lease.token.encode()] * 3
    await lease.release()
    await asyncio.sleep(0.1)
    assert rig.clean


async def test_a_forgetful_node_is_not_repaired_before_it_is_trusted(rig: Rig) -> None:
    process = await rig.process(max_ttl=GUARD, ttl=3.0)
    lease = await process.lock("a").acquire()
    rig.servers[1].restart()
    await asyncio.sleep(GUARD - 0.5)
    assert rig.values(b"a")[1] is None
    await asyncio.sleep(4)
    assert rig.values(b"a")[1] == lease.token.encode()
    assert lease.valid


async def test_a_quarantined_node_is_sent_no_repairs_and_gets_all_keys_after_its_quarantine(
    rig: Rig,
) -> None:
    """Otherwise each lease and renewal would send the node a repair for the whole guard time, and
    the node would refuse all repairs.
    """
    process = await rig.process(max_ttl=GUARD, ttl=3.0)
    leases = await asyncio.gather(*(process.lock(f"{number}").acquire() for number in range(20)))
    await asyncio.sleep(0.2)
    rig.servers[1].restart()
    await asyncio.sleep(0.2)
    assert states(process.redlock) == ["up", "quarantined", "up"]
    questions = process.questions()
    before, renewals = process.redlock.stats().repairs, process.redlock.stats().renewals
    while states(process.redlock)[1] == "quarantined":
        await asyncio.sleep(0.01)
    assert process.redlock.stats().renewals >= renewals + 3 * len(leases)
    assert [command for command in questions if command.script.name == "repair"] == []
    assert process.redlock.stats().repairs == before
    await asyncio.sleep(2)
    keys = {b"%d" % number for number in range(20)}
    held = rig.keys()
    assert [keys & on_server for on_server in held] == [keys] * 3
    assert process.redlock.stats().repairs == before + len(leases)
    assert all(lease.nodes == (3, 3) for lease in leases)


async def test_a_lease_survives_a_rolling_restart_a_guard_time_apart(rig: Rig) -> None:
    process = await rig.process(max_ttl=GUARD, ttl=3.0)
    lease = await process.lock("a").acquire()
    for server in rig.servers:
        server.restart()
        await asyncio.sleep(GUARD + 4)
        assert lease.valid
    assert lease.nodes == (3, 3)


async def test_a_lease_is_lost_at_once_when_the_restarts_go_faster(rig: Rig) -> None:
    process = await rig.process(max_ttl=GUARD, ttl=3.0)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.5)
    rig.servers[0].restart()
    await asyncio.sleep(0.5)
    assert lease.valid
    rig.servers[1].restart()
    before = now()
    await lease.wait_lost()
    assert now() - before < 0.1
    assert lease.lost


async def test_a_repair_sets_no_key_on_a_node_with_a_higher_fence(rig: Rig) -> None:
    process = await rig.process(ttl=3.0)
    lease = await process.lock("a").acquire()
    await asyncio.sleep(0.2)
    server = rig.servers[1]
    server.counters = dict.fromkeys(server.counters, 2**52)
    rig.vacate(b"a", on=[1])
    await asyncio.sleep(5)
    assert rig.values(b"a")[1] is None
    assert lease.valid


@pytest.mark.parametrize("late", [False, True], ids=["first", "last"])
async def test_a_node_that_forgot_is_inspected_although_the_other_nodes_are_a_quorum(
    rig: Rig, late: bool
) -> None:
    """A server without tracking sends no message when it is flushed. Only its votes show it."""
    process = await rig.process(max_ttl=GUARD, ttl=3.0)
    # The node is there and up, and says nothing of itself.
    process.nodes[0].invalidated = lambda keys: None  # type: ignore[method-assign]
    rig.ways = [2 * WAY, WAY, WAY] if late else [WAY, 2 * WAY, 2 * WAY]
    rig.servers[0].flush()
    for name in "a", "b":
        async with process.lock(name, blocking_timeout=0):
            pass
    await asyncio.sleep(10 * WAY)
    assert states(process.redlock) == ["quarantined", "up", "up"]
    await asyncio.sleep(GUARD + 2)
    assert states(process.redlock) == ["up"] * 3


async def test_a_quarantine_and_its_end_are_reported_once_each(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await rig.process(max_ttl=GUARD, ttl=3.0)
    rig.servers[1].restart()
    await asyncio.sleep(GUARD + 5)
    said = [record.getMessage() for record in caplog.records if "memory-1" in record.getMessage()]
    assert sum("grants no lock" in line for line in said) == 1
    assert sum("may grant locks again" in line for line in said) == 1


@pytest.mark.parametrize("known", [False, True], ids=["never trusted", "trusted before"])
async def test_a_node_that_refuses_to_show_its_marker_is_quarantined_until_it_shows_it(
    rig: Rig, caplog: pytest.LogCaptureFixture, known: bool
) -> None:
    """The node grants nothing, so an event must report it.

    The node sends no message when its rights are restored.
    """
    heard: list[Event] = []
    await rig.process()
    if not known:
        rig.refuse("NOPERM marker", 1)
    process = await rig.process(sinks=[heard.append], owner=False)
    if known:
        rig.refuse("NOPERM marker", 1)
        process.redlock.engine().invalidated(1, [MARKER_KEY])
    await asyncio.sleep(3)
    assert states(process.redlock) == ["up", "quarantined", "up"]
    assert heard == [NodeQuarantined("memory-1", inf, "NOPERM marker")]
    rig.refuse(None, 1)
    await asyncio.sleep(3)
    assert states(process.redlock) == ["up"] * 3
    assert heard[1:] == [NodeTrusted("memory-1")]
    assert [line for line in caplog.messages if "memory-1" in line] == [
        "node memory-1 grants no lock, because it refuses the recovery guard: NOPERM marker"
    ]


async def test_a_quarantine_is_reported_again_for_a_new_connection(rig: Rig) -> None:
    """A listener of several managers needs the full state after a new connection."""
    heard: list[Event] = []
    process = await rig.process(max_ttl=GUARD, ttl=3.0, sinks=[heard.append])
    rig.servers[1].restart()
    await asyncio.sleep(1)
    node = process.nodes[1]
    node.disconnect()
    process.redlock.engine().reports.identify(1, "another connection")
    node.connect()
    await asyncio.sleep(GUARD + 5)
    about = [type(event) for event in heard if isinstance(event, NodeQuarantined | NodeTrusted)]
    assert about == [NodeQuarantined, NodeQuarantined, NodeTrusted]


async def test_a_set_that_answers_late_is_not_taken_for_a_new_set(rig: Rig) -> None:
    """A client that saw trusted nodes with a longer guard time than its own keeps that guard time.

    It writes no shorter guard time while the nodes are slow.
    """
    first = await rig.process(max_ttl=60.0, ttl=3.0)
    process = await rig.process(max_ttl=GUARD, ttl=3.0)
    trusted = rig.values(MARKER_KEY)[0]
    assert trusted is not None
    await first.redlock.aclose()
    rig.ways[:2] = [0.2] * 2
    rig.servers[2].flush()
    await asyncio.sleep(1)
    marker = rig.values(MARKER_KEY)[2]
    assert marker is not None
    assert marker.count(b":") == 2, "it waits, and founds nothing"
    assert marker.split(b":")[1] == trusted.split(b":")[1]
    assert states(process.redlock)[2] == "quarantined"


async def test_after_a_total_outage_nodes_are_trusted_again(rig: Rig) -> None:
    process = await rig.process(max_ttl=GUARD, ttl=3.0)
    rig.stop(0, 1, 2)
    await asyncio.sleep(1)
    for server in rig.servers:
        server.restart()
    rig.start(0, 1, 2)
    async with asyncio.timeout(GUARD + 5), process.lock("a"):
        assert states(process.redlock) == ["up"] * 3


async def test_a_timeout_as_a_new_attempt_begins_reports_the_votes_of_the_attempt_before(
    rig: Rig,
) -> None:
    """A node that is down answers at once each time. That answer alone is not the error."""
    process = await rig.process(max_ttl=600.0, ttl=3.0)
    rig.disconnect(2)
    rig.servers[1].restart()
    await asyncio.sleep(1)
    for milliseconds in range(100, 400):
        with pytest.raises(QuorumUnreachable, match="quarantined"):
            await process.lock("a", blocking_timeout=milliseconds / 1000).acquire()


def restart_all(rig: Rig, how: str) -> None:
    for server in rig.servers:
        server.flush() if how == "flush" else server.restart()


ONE_AND_THREE = pytest.mark.parametrize("rig", [1, 3], indirect=True)


@ONE_AND_THREE
@pytest.mark.parametrize("how", ["restart", "flush"])
async def test_a_held_lock_is_not_granted_again_although_all_nodes_forgot_it(
    rig: Rig, how: str
) -> None:
    holder, other = [await rig.process(max_ttl=GUARD, ttl=4.0) for _ in range(2)]
    lease = await holder.lock("a", auto_extend=False).acquire()
    deadline = now() + lease.remaining()
    restart_all(rig, how)
    assert await other.lock("a").acquire()
    assert now() > deadline
    assert now() <= deadline + GUARD + 3, "a set that forgot is not kept out for ever"


@ONE_AND_THREE
@pytest.mark.parametrize("age", [0.0, 0.2], ids=["young", "watched"])
async def test_a_holder_without_renewals_is_notified_at_once_that_all_nodes_forgot(
    rig: Rig, age: float
) -> None:
    process = await rig.process(ttl=4.0)
    lease = await process.lock("a", auto_extend=False).acquire()
    await asyncio.sleep(age)
    before = now()
    restart_all(rig, "restart")
    await lease.wait_lost()
    assert lease.lost
    assert now() - before <= 4 * WAY + 0.001


@ONE_AND_THREE
async def test_the_loss_of_all_memory_is_reported_once_as_an_event_and_in_the_log(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []
    process = await rig.process(max_ttl=GUARD, ttl=3.0, sinks=[heard.append])
    for _ in range(2):
        heard.clear()
        caplog.clear()
        restart_all(rig, "restart")
        await asyncio.sleep(GUARD + 3)
        assert states(process.redlock) == ["up"] * len(rig.servers)
        (void,) = [event for event in heard if isinstance(event, AllNodesForgot)]
        assert void.nodes == tuple(server.address for server in rig.servers)
        assert GUARD <= void.left <= GUARD + 1
        said = (
            f"all nodes restarted or lost their memory ({', '.join(void.nodes)}): "
            "locks that they forgot are void; no lock is"
        )
        assert sum(line.startswith(said) for line in caplog.messages) == 1


@ONE_AND_THREE
async def test_after_a_restart_of_all_nodes_that_kept_their_locks_nothing_calls_these_locks_void(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    process = await rig.process(max_ttl=GUARD, ttl=3.0)
    lease = await process.lock("a").acquire()
    for server in rig.servers:
        server.restart(forget=False)
    renewals = process.redlock.stats().renewals
    await asyncio.sleep(GUARD + 3)
    assert lease.valid
    assert process.redlock.stats().renewals > renewals + 2
    (said,) = [line for line in caplog.messages if "void" in line]
    assert said.startswith("all nodes restarted or lost their memory")
    assert "locks that they forgot are void" in said


async def test_no_event_says_that_all_nodes_forgot_while_a_node_still_knows_its_locks(
    rig: Rig,
) -> None:
    heard: list[Event] = []
    await rig.process(max_ttl=GUARD, ttl=3.0, sinks=[heard.append])
    for server in rig.servers[:2]:
        server.restart()
    await asyncio.sleep(GUARD + 3)
    assert not [event for event in heard if isinstance(event, AllNodesForgot)]


@ONE_AND_THREE
async def test_a_witness_lets_a_set_wait_that_a_new_process_has_founded_and_promoted(
    rig: Rig,
) -> None:
    """The new process may be granted a lock until the witness reads the markers, and not later."""
    witness = await rig.process(max_ttl=GUARD, ttl=3.0)
    rig.stop(*range(len(rig.servers)))
    restart_all(rig, "restart")
    for server in rig.servers:
        server.up = True
    founder = rig.new_process(max_ttl=GUARD, ttl=3.0)
    await founder.redlock.open()
    assert await founder.lock("a").try_acquire(), "no witness is there yet"
    before = now()
    rig.connect(*range(len(rig.servers)))
    await asyncio.sleep(10 * WAY)
    for process in (witness, founder):
        assert states(process.redlock) == ["quarantined"] * len(rig.servers)
        with pytest.raises(QuorumUnreachable):
            await process.lock("b").try_acquire()
    assert await founder.lock("b").acquire()
    assert GUARD <= now() - before <= GUARD + 3


@ONE_AND_THREE
async def test_a_witness_that_saw_nodes_empty_lets_them_wait_although_their_run_ids_are_the_same(
    rig: Rig,
) -> None:
    """A flushed node has the run id that it had before. A new process founds the set between the
    reading of the witness and its next write.
    """
    witness = await rig.process(max_ttl=GUARD, ttl=3.0, away=20)
    await asyncio.sleep(1)
    restart_all(rig, "flush")
    # The report of the change takes 20 ms to the witness, and its request 20 ms to the nodes.
    await asyncio.sleep(0.0385)
    founder = await rig.process(max_ttl=GUARD, ttl=3.0)
    assert await founder.lock("a").try_acquire(), "the set is new to this process"
    before = now()
    await asyncio.sleep(0.2)
    for process in (witness, founder):
        assert states(process.redlock) == ["quarantined"] * len(rig.servers)
        with pytest.raises(QuorumUnreachable):
            await process.lock("b").try_acquire()
    assert await founder.lock("b").acquire()
    assert GUARD <= now() - before <= GUARD + 3


@ONE_AND_THREE
async def test_a_process_that_starts_after_all_nodes_forgot_is_no_witness(rig: Rig) -> None:
    """A remaining risk: no client is left that has seen the nodes before."""
    before = await rig.process(max_ttl=GUARD, ttl=3.0)
    await before.redlock.aclose()
    restart_all(rig, "restart")
    process = await rig.process(max_ttl=GUARD, ttl=3.0)
    assert await process.lock("a").try_acquire()


async def test_a_process_cut_off_from_the_nodes_for_the_guard_time_is_no_witness(rig: Rig) -> None:
    process = await rig.process(max_ttl=GUARD, ttl=3.0)
    rig.stop(0, 1, 2)
    await asyncio.sleep(GUARD + 1)
    restart_all(rig, "restart")
    rig.start(0, 1, 2)
    await asyncio.sleep(10 * WAY)
    assert await process.lock("a").try_acquire()


async def test_a_guard_time_above_a_day_quarantines_its_own_node_and_spreads_to_no_other(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    process = await rig.process(max_ttl=GUARD, ttl=3.0)
    server = rig.servers[0]
    server.set(MARKER_KEY, server.run_id + b":%d" % 10**15, inf)
    await asyncio.sleep(0.1)
    assert states(process.redlock) == ["quarantined", "up", "up"]
    assert "its marker named a guard time above 86,401,000 ms" in process.redlock.nodes[0].reason
    assert sum("its marker named a guard time above" in line for line in caplog.messages) == 1
    rig.servers[1].restart()
    await asyncio.sleep(GUARD + 3)
    assert states(process.redlock) == ["up"] * 3
    assert all(
        marker is not None and marker.endswith(b":%d" % (1000 * GUARD))
        for marker in rig.values(MARKER_KEY)
    )


@pytest.mark.parametrize(
    "reply",
    [
        [1, 2, 3],
        [b"m", b"now", 7],
        [b"m:1:2", b"1", b"m:1"],
        [b"m:1:2", 10**400, b"m:1"],
        [],
        "text",
        {b"a": 1},
        [b"m", 0, b"v", b"more"],
    ],
)
async def test_a_node_whose_answer_cannot_be_read_does_not_stop_the_guard_of_the_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, reply: Any
) -> None:
    odd = rig.servers[2]
    monkeypatch.setattr(odd, "_marker", lambda *_: reply)
    process = await rig.process(max_ttl=GUARD, ttl=2.0)
    assert "which does not fit it" in process.redlock.nodes[2].reason
    async with asyncio.timeout(GUARD + 3), process.lock("a"):
        assert states(process.redlock) == ["up", "up", "quarantined"]
    monkeypatch.undo()
    await asyncio.sleep(GUARD + 3)
    assert states(process.redlock) == ["up"] * 3


@pytest.mark.parametrize("changes", [False, True], ids=["one marker", "ever another"])
async def test_a_node_that_keeps_no_marker_is_asked_at_a_bounded_pace_and_stops_no_other(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, changes: bool
) -> None:
    server = rig.servers[0]
    honest, asked = server._marker, 0

    def forgets(command: Command, by: Connection) -> Reply:
        nonlocal asked
        asked += 1
        _, node_ms, own_marker = honest(command, by)
        # As if another client wrote it each time.
        by.invalidated([MARKER_KEY])
        return [b"%d" % asked if changes else b"0", node_ms, own_marker]

    monkeypatch.setattr(server, "_marker", forgets)
    process = await rig.process(max_ttl=GUARD, ttl=3.0)
    await process.redlock.wait_ready(GUARD + 3)
    before = asked
    await asyncio.sleep(10)
    looks_at_once, looks_per_second, read_and_write = 20, 10, 2
    assert asked - before <= read_and_write * (looks_at_once + looks_per_second * 10)
    assert await process.lock("a").try_acquire()


async def test_the_advice_for_test_suites_is_given_where_tests_run(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    process = await rig.process(max_ttl=GUARD, ttl=3.0)
    for expected in (True, False):
        if not expected:
            monkeypatch.delitem(sys.modules, "pytest")
        restart_all(rig, "restart")
        await asyncio.sleep(1)
        with pytest.raises(QuorumUnreachable) as error:
            await process.lock("a").try_acquire()
        for words in (
            str(error.value),
            process.redlock.nodes[0].reason,
            "\n".join(caplog.messages),
        ):
            assert ("recovery_guard=None" in words) is expected
        caplog.clear()
        await asyncio.sleep(GUARD + 3)


@pytest.mark.parametrize("fault", ["it hints without end", "it never keeps its marker"])
async def test_a_node_cannot_have_all_nodes_asked_for_their_markers_without_end(
    rig: Rig, fault: str
) -> None:
    process = await rig.process(max_ttl=GUARD, ttl=2.0)
    asked = process.questions()
    seconds = 10
    for _ in range(int(seconds / WAY)):
        if fault == "it hints without end":
            process.redlock.engine().invalidated(0, None)
        else:
            rig.vacate(MARKER_KEY, on=[0])
        await asyncio.sleep(WAY)
    looks = sum(command.script is MARKER for command in asked)
    looks_at_once, looks_per_second, asked_by_look = 20, 10, 4
    assert 0 < looks <= asked_by_look * (looks_at_once + looks_per_second * seconds)
    assert await process.lock("a", blocking_timeout=1).acquire(), "the other two are a quorum"
