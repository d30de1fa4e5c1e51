"""The availability of a quorum.

Its loss and its return are reported once each, and a caller can refuse to wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import (
    AcquireTimeout,
    ConfigurationError,
    LockHeld,
    QuorumUnreachable,
    RedlockClosed,
)
from aioredlock_ng._core.votes import Unsent
from aioredlock_ng._nodes.memory import MemoryNode
from aioredlock_ng.events import Event, QuorumLost, QuorumRegained
from tests.support.rig import NODE_TIMEOUT

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from aioredlock_ng._nodes.port import Sink
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time

GUARD = 5.0
"""Seconds of `max_ttl` in these tests; a node waits one more."""


def now() -> float:
    return asyncio.get_running_loop().time()


def of_quorum(heard: list[Event]) -> list[Any]:
    return [event for event in heard if isinstance(event, QuorumLost | QuorumRegained)]


async def test_the_loss_and_the_return_of_a_quorum_are_reported_once_each(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aioredlock_ng")
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append])
    await asyncio.sleep(1)
    for index in (2, 1, 0):
        rig.stop(index)
        await asyncio.sleep(1)
        assert process.redlock.ready is (index == 2)
    for index in (0, 1, 2):
        rig.start(index)
        await asyncio.sleep(1)
        assert process.redlock.ready is (index > 0)
    lost, back = of_quorum(heard)
    assert (lost.able, lost.needed, lost.nodes, lost.back_in) == (1, 2, 3, None)
    assert lost.reasons == ("memory-1: down (not connected)", "memory-2: down (not connected)")
    assert (back.able, back.needed, back.nodes, back.after) == (2, 2, 3, pytest.approx(3, abs=0.1))
    told = [
        (record.levelname, record.message)
        for record in caplog.records
        if "quorum" in record.message
    ]
    down = "memory-1: down (not connected); memory-2: down (not connected)"
    assert told == [
        ("WARNING", f"no quorum: 1 of 3 nodes can grant locks, 2 are needed: {down}"),
        (
            "INFO",
            (
                "a quorum is back: 2 of 3 nodes can grant locks, 2 are needed; "
                "there was no quorum for 3.0 s"
            ),
        ),
    ]


async def test_opening_without_a_quorum_is_reported_once(rig: Rig) -> None:
    heard: list[Event] = []
    rig.stop(0, 1)
    process = await rig.process(sinks=[heard.append], recovery_guard=None)
    assert [type(event) for event in of_quorum(heard)] == [QuorumLost]
    assert not process.redlock.ready
    rig.start(0, 1)
    await process.redlock.wait_ready()
    assert [type(event) for event in of_quorum(heard)] == [QuorumLost, QuorumRegained]


async def test_nodes_that_forgot_are_no_majority_until_their_quarantine_is_over(rig: Rig) -> None:
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append], max_ttl=GUARD, ttl=2.0)
    await asyncio.sleep(1)
    rig.stop(0, 1)
    await asyncio.sleep(1)
    for index in (0, 1):
        rig.servers[index].flush()
    rig.start(0, 1)
    since = now()
    await asyncio.sleep(1)
    assert not process.redlock.ready
    with pytest.raises(QuorumUnreachable) as error:
        await process.lock("a", blocking_timeout=0).acquire()
    assert error.value.retry_after == pytest.approx(GUARD + 1 - (now() - since), abs=0.2)
    await process.redlock.wait_ready()
    assert now() - since == pytest.approx(GUARD + 1, abs=0.5)
    assert await process.lock("a", blocking_timeout=0).acquire()
    assert [type(event) for event in of_quorum(heard)] == [QuorumLost, QuorumRegained]


async def test_an_error_says_when_the_quarantine_of_flushed_nodes_is_over(rig: Rig) -> None:
    process = await rig.process(max_ttl=GUARD, ttl=2.0)
    for index in (0, 1):
        rig.servers[index].flush()
    await asyncio.sleep(1)
    with pytest.raises(QuorumUnreachable) as error:
        await process.lock("a", blocking_timeout=0).acquire()
    assert error.value.retry_after == pytest.approx(GUARD, abs=0.3)


async def test_wait_ready_returns_when_a_majority_is_connected(rig: Rig) -> None:
    rig.stop(0, 1, 2)
    process = await rig.process(recovery_guard=None)
    waiting = [asyncio.create_task(process.redlock.wait_ready(timeout)) for timeout in (None, 60.0)]
    await asyncio.sleep(10)
    rig.start(2)
    await asyncio.sleep(10)
    assert not any(task.done() for task in waiting)
    since = now()
    rig.start(0)
    await asyncio.gather(*waiting)
    assert now() - since < 0.1
    await process.redlock.wait_ready(0)


@pytest.mark.parametrize("timeout", [0, 5.0])
async def test_wait_ready_names_each_node_that_cannot_grant_and_why(
    rig: Rig, timeout: float
) -> None:
    rig.stop(0)
    process = await rig.process(max_ttl=60.0)
    rig.stop(1)
    since = now()
    with pytest.raises(QuorumUnreachable) as error:
        await process.redlock.wait_ready(timeout)
    assert now() - since == pytest.approx(timeout, abs=0.01)
    words = str(error.value)
    assert words.startswith(f"no quorum of 2 nodes can grant locks after {timeout:g} s:")
    assert "memory-0: down (not connected)" in words
    assert "memory-1: down (not connected)" in words
    assert "memory-2: quarantined (" in words
    assert error.value.retry_after is None


async def test_wait_ready_ends_when_the_manager_is_closed(rig: Rig) -> None:
    rig.stop(0, 1)
    process = await rig.process()
    waiting = asyncio.create_task(process.redlock.wait_ready())
    await asyncio.sleep(1)
    await process.redlock.aclose()
    with pytest.raises(RedlockClosed, match="closed while this call waited"):
        await waiting
    assert not process.redlock.ready
    with pytest.raises(RedlockClosed, match="not open"):
        await process.redlock.wait_ready()


async def test_wait_ready_that_is_cancelled_changes_nothing(rig: Rig) -> None:
    rig.stop(0, 1)
    process = await rig.process(recovery_guard=None)
    waiting = asyncio.create_task(process.redlock.wait_ready())
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    rig.start(0, 1)
    await process.redlock.wait_ready(1)


async def test_wait_ready_refuses_another_event_loop_and_ready_does_not(rig: Rig) -> None:
    process = await rig.process()
    await process.redlock.wait_ready(1)
    found: list[Any] = []

    def elsewhere() -> None:
        found.append(process.redlock.ready)
        with pytest.raises(RedlockClosed, match="another event loop"):
            asyncio.run(process.redlock.wait_ready(1))
        found.append("refused")

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [True, "refused"]


@pytest.mark.parametrize("timeout", [-1, True, "5", float("nan")])
async def test_wait_ready_refuses_an_invalid_timeout(rig: Rig, timeout: Any) -> None:
    process = await rig.process()
    with pytest.raises(ConfigurationError, match="timeout must be"):
        await process.redlock.wait_ready(timeout)


async def test_a_node_too_slow_to_show_its_marker_is_asked_again(rig: Rig) -> None:
    process = await rig.process()
    rig.disconnect(0, 1)
    await asyncio.sleep(1)
    rig.hang(0, 1)
    rig.connect(0, 1)
    await asyncio.sleep(1)
    assert not process.redlock.ready
    rig.resume()
    await process.redlock.wait_ready(5)


async def test_fail_fast_makes_one_attempt_while_no_majority_can_grant(rig: Rig) -> None:
    process = await rig.process()
    rig.stop(0, 1)
    await asyncio.sleep(1)
    since = now()
    with pytest.raises(QuorumUnreachable, match="memory-0: failed"):
        await process.lock("a", blocking_timeout=60, fail_fast=True).acquire()
    assert now() - since < 0.2
    with pytest.raises(QuorumUnreachable):
        await process.lock("a", blocking_timeout=3).acquire()
    assert now() - since >= 3


class Suspect(MemoryNode):
    """A connection to a server that has not answered for so long that it counts as suspect."""

    @property
    def ready(self) -> bool:
        return False

    def ask(self, sink: Sink, index: int) -> None:
        if sink.command.owed_until is None:
            sink.deliver(index, Unsent("suspect"))
        else:
            super().ask(sink, index)


async def test_fail_fast_ends_once_nodes_that_hang_count_as_suspect(rig: Rig) -> None:
    process = await rig.process()
    rig.hang(0, 1)
    waiting = asyncio.create_task(process.lock("a", blocking_timeout=60, fail_fast=True).acquire())
    # Until then, the silence may end at any moment.
    await asyncio.sleep(4 * NODE_TIMEOUT)
    assert not waiting.done()
    for node in process.nodes[:2]:
        node.__class__ = Suspect
        node.invalidated(None)
    since = now()
    with pytest.raises(QuorumUnreachable, match=r"memory-0: (unknown|failed)"):
        await waiting
    assert now() - since < 1
    since = now()
    with pytest.raises(QuorumUnreachable, match="memory-0: failed"):
        await process.lock("a", blocking_timeout=60, fail_fast=True).acquire()
    assert now() - since < 0.2


async def test_fail_fast_does_not_wait_behind_a_holder_of_its_process_without_a_majority(
    rig: Rig,
) -> None:
    process = await rig.process()
    lease = await process.lock("a", ttl=30).acquire()
    rig.stop(0, 1)
    await asyncio.sleep(1)
    since = now()
    with pytest.raises(QuorumUnreachable):
        await process.lock("a", blocking_timeout=20, fail_fast=True).acquire()
    assert now() - since < 0.2
    assert lease.valid


async def test_fail_fast_ends_a_wait_during_which_the_majority_is_lost(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    waiting = asyncio.create_task(process.lock("a", blocking_timeout=50, fail_fast=True).acquire())
    await asyncio.sleep(1)
    since = now()
    rig.stop(0, 1)
    with pytest.raises(QuorumUnreachable):
        await waiting
    assert now() - since < 1


async def test_fail_fast_ends_a_wait_behind_a_task_that_waits_for_the_majority(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a")

    def waiter(*, fail_fast: bool) -> asyncio.Task[Lease]:
        return asyncio.create_task(process.lock("a", fail_fast=fail_fast).acquire())

    patient, hasty = [], []
    for _ in range(3):
        patient.append(waiter(fail_fast=False))
        hasty.append(waiter(fail_fast=True))
    await asyncio.sleep(1)
    since = now()
    rig.stop(0, 1)
    for task in hasty:
        with pytest.raises(QuorumUnreachable, match="memory-0: failed"):
            await asyncio.wait_for(task, 1)
    assert now() - since < 1
    assert not any(task.done() for task in patient)
    rig.vacate(b"a")
    rig.start(0, 1)
    for task in patient:
        await (await task).release()


@pytest.mark.parametrize("how", ["stop", "refuse"])
async def test_all_tasks_of_a_line_fail_together_if_the_majority_is_lost(
    rig: Rig, how: str
) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    lock = process.lock("a", blocking_timeout=50, fail_fast=True)
    waiting = [asyncio.create_task(lock.acquire()) for _ in range(40)]
    await asyncio.sleep(1)
    since = now()
    if how == "stop":
        rig.stop(0, 1)
    else:
        for node in process.nodes:
            node.refuse("the password is wrong")
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(error) for error in errors} == {QuorumUnreachable}
    assert now() - since < 1


async def test_tasks_that_follow_one_another_amid_a_back_off_send_no_more_attempts(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    waiting = [
        asyncio.create_task(process.lock("a", blocking_timeout=5 + 0.003 * number).acquire())
        for number in range(300)
    ]
    await asyncio.sleep(1)
    rig.stop(0, 1)
    await asyncio.sleep(3.5)
    before = process.redlock.stats().attempts
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(error) for error in errors} == {QuorumUnreachable}
    assert process.redlock.stats().attempts - before < 10


async def test_a_task_that_follows_another_amid_its_back_off_learns_who_holds_the_lock(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    first = asyncio.create_task(process.lock("a").acquire())
    second = asyncio.create_task(process.lock("a", blocking_timeout=9).acquire())
    await asyncio.sleep(0.5)
    for node in process.nodes:
        node.disconnect()
    await asyncio.sleep(5)
    for node in process.nodes:
        node.connect()
    first.cancel()
    with pytest.raises(AcquireTimeout):
        await second


async def test_a_free_lock_is_acquired_at_once_though_a_node_came_back_during_the_attempt(
    rig: Rig,
) -> None:
    process = await rig.process(recovery_guard=None)
    await asyncio.sleep(1)
    rig.ways[2] = 0.04
    rig.occupy(b"a", on=[2])
    process.nodes[0].disconnect()
    await asyncio.sleep(0.5)
    waiting = asyncio.create_task(process.lock("a").acquire())
    await asyncio.sleep(0.04)
    process.nodes[0].connect()
    async with asyncio.timeout(1):
        await (await waiting).release()


async def test_fail_fast_waits_for_a_holder_and_through_one_silent_moment(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a")
    with pytest.raises(AcquireTimeout):
        await process.lock("a", blocking_timeout=1, fail_fast=True).acquire()
    rig.vacate(b"a")
    rig.hang(0, 1)
    waiting = asyncio.create_task(process.lock("a", blocking_timeout=5, fail_fast=True).acquire())
    await asyncio.sleep(0.2)
    rig.resume()
    assert await waiting


async def test_fail_fast_waits_for_a_holder_whose_nodes_are_only_just_back(rig: Rig) -> None:
    holder, process = await rig.process(), await rig.process()
    lease = await holder.lock("a", ttl=30).acquire()
    for index in (0, 1):
        process.nodes[index].disconnect()
    await asyncio.sleep(1)
    for index in (0, 1):
        process.nodes[index].connect()
    assert not process.redlock.ready
    waiting = [
        asyncio.create_task(process.lock("a", blocking_timeout=timeout, fail_fast=True).acquire())
        for timeout in (None, 5.0, 0.5)
    ]
    await asyncio.sleep(1)
    assert type(waiting[2].exception()) is AcquireTimeout
    await lease.release()
    for each in waiting[:2]:
        await (await each).release()
    assert process.redlock.stats().waiting == 0


async def test_a_fail_fast_lock_that_its_own_task_holds_is_refused_at_once(rig: Rig) -> None:
    process = await rig.process()
    async with process.lock("a"):
        for index in (0, 1):
            process.nodes[index].disconnect()
        await asyncio.sleep(0.5)
        for index in (0, 1):
            process.nodes[index].connect()
        with pytest.raises(LockHeld, match="this very task"):
            await process.lock("a", fail_fast=True).acquire()


async def test_fail_fast_is_true_or_false(rig: Rig) -> None:
    process = await rig.process()
    with pytest.raises(ConfigurationError, match="fail_fast must be True or False, not int"):
        process.lock("a", fail_fast=1)  # type: ignore[arg-type]


async def test_a_node_in_quarantine_that_misses_one_answer_stays_in_quarantine(
    rig: Rig,
) -> None:
    """Otherwise the manager would report a quorum that cannot grant."""
    heard: list[Event] = []
    process = await rig.process(sinks=[heard.append], max_ttl=GUARD, ttl=2.0)
    for index in (0, 1):
        rig.servers[index].restart()
    since = now()
    await asyncio.sleep(2)
    assert not process.redlock.ready
    rig.hang(0, 1)
    await asyncio.sleep(1.5)
    assert not process.redlock.ready
    assert [node.state for node in process.redlock.nodes] == ["quarantined", "quarantined", "up"]
    rig.resume()
    await process.redlock.wait_ready(60)
    assert now() - since >= GUARD + 1
    assert [type(event) for event in of_quorum(heard)] == [QuorumLost, QuorumRegained]
