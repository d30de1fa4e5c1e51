"""Once a quorum has reported a waiting writer, a reader enters the queue without an attempt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import AcquireTimeout, LockHeld, QuorumUnreachable
from aioredlock_ng._core.readers import READER_QUEUE_KEYS
from tests.engine.rwlocks import KEY, reading, rwlock, writing
from tests.support.rig import WAY

if TYPE_CHECKING:
    from aioredlock_ng import Lease
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time


async def read_while_a_writer_waits(rig: Rig) -> tuple[Process, Lease, asyncio.Task[Lease]]:
    """Return a process that reads, its lease, and the task of a writer in another process."""
    reader, other = await rig.process(), await rig.process()
    lease = await rwlock(reader).read().acquire()
    writer = writing(other)
    # The writer's attempt and its entry take a round trip each, and the message takes one way.
    await asyncio.sleep(6 * WAY)
    return reader, lease, writer


def count(asked: list[Any], script: str) -> int:
    return sum(command.script.name == script for command in asked)


async def test_a_reader_behind_a_reported_writer_makes_one_attempt_after_the_writer(
    rig: Rig,
) -> None:
    reader, early, writer = await read_while_a_writer_waits(rig)
    asked = reader.questions()
    late = reading(reader)
    await asyncio.sleep(0.5)
    assert count(asked, "acquire_read") == 0
    assert count(asked, "stand_read") >= 3
    await early.release()
    written = await writer
    assert not late.done()
    await written.release()
    lease = await late
    assert lease.fence is not None
    assert written.fence is not None
    assert lease.fence >= written.fence
    assert count(asked, "acquire_read") == 3
    await lease.release()
    assert rig.clean


async def test_only_a_quorum_of_reports_stops_the_sharing(rig: Rig) -> None:
    reader = await rig.process()
    early = await rwlock(reader).read().acquire()
    engine = reader.redlock.engine()
    report = b"-1 %b %b" % (engine.context.manager, KEY)
    for _ in range(3):
        engine.lines.notified(0, report)
    shared = await rwlock(reader).read().acquire()
    assert shared.token == early.token
    engine.lines.notified(1, report)
    late = await rwlock(reader).read().acquire()
    assert late.token != early.token
    for lease in (early, shared, late):
        await lease.release()
    assert rig.clean


async def test_a_writer_that_comes_between_an_offer_to_readers_and_their_grant_stops_the_sharing(
    rig: Rig,
) -> None:
    first, far, other = await rig.process(), await rig.process(away=20.0), await rig.process()
    written = await rwlock(first).write().acquire()
    waited = [reading(far), reading(far)]
    await asyncio.sleep(0.3)
    await written.release()
    # The offers take 20 ms to the readers. The writer is in the queues before their attempt.
    await asyncio.sleep(5 * WAY)
    writer = writing(other)
    leases = await asyncio.gather(*waited)
    assert leases[0].token == leases[1].token
    late = reading(far)
    await asyncio.sleep(0.2)
    assert not late.done()
    assert not writer.done()
    for lease in leases:
        await lease.release()
    written = await writer
    assert not late.done()
    await written.release()
    await (await late).release()
    assert rig.clean


async def test_a_call_that_does_not_wait_makes_an_attempt_in_any_case(rig: Rig) -> None:
    reader, early, writer = await read_while_a_writer_waits(rig)
    asked = reader.questions()
    with pytest.raises(LockHeld):
        await rwlock(reader, blocking_timeout=0).read().acquire()
    assert count(asked, "acquire_read") == 3
    await early.release()
    await (await writer).release()


async def test_the_next_reader_gets_in_at_once_when_the_writer_has_given_up(rig: Rig) -> None:
    reader, early, writer = await read_while_a_writer_waits(rig)
    writer.cancel()
    await asyncio.wait([writer])
    await asyncio.sleep(0.1)
    async with asyncio.timeout(6 * WAY):
        late = await rwlock(reader).read().acquire()
    asked = reader.questions()
    # The new grant is shared again.
    more = await rwlock(reader).read().acquire()
    assert more.token == late.token
    assert not asked
    for lease in (early, late, more):
        await lease.release()
    assert rig.clean


async def test_a_wait_without_an_attempt_times_out_as_any_other_wait(rig: Rig) -> None:
    reader, early, writer = await read_while_a_writer_waits(rig)
    with pytest.raises(AcquireTimeout, match=r"still held by .* after 1 s"):
        await rwlock(reader, blocking_timeout=1.0).read().acquire()
    await early.release()
    await (await writer).release()
    assert rig.clean


async def test_without_a_lease_of_its_own_a_process_makes_an_attempt(rig: Rig) -> None:
    reader, early, writer = await read_while_a_writer_waits(rig)
    await early.release()
    await (await writer).release()
    await asyncio.sleep(0.1)
    asked = reader.questions()
    lease = await rwlock(reader).read().acquire()
    assert count(asked, "acquire_read") == 3
    assert not count(asked, "stand_read")
    await lease.release()


@pytest.mark.parametrize("after", [0.0, WAY, 2 * WAY, 3 * WAY, 0.5])
async def test_a_cancelled_reader_leaves_the_queue(rig: Rig, after: float) -> None:
    reader, early, writer = await read_while_a_writer_waits(rig)
    late = reading(reader)
    await asyncio.sleep(after)
    late.cancel()
    await asyncio.wait([late])
    assert late.cancelled()
    await early.release()
    await (await writer).release()
    await asyncio.sleep(0.5)
    assert rig.clean


@pytest.mark.parametrize("how", ["disconnect", "hang"])
async def test_long_after_the_report_a_wait_for_nodes_that_are_gone_ends_as_unreachable(
    rig: Rig, how: str
) -> None:
    reader, early, writer = await read_while_a_writer_waits(rig)
    writer.cancel()
    await asyncio.wait([writer])
    await asyncio.sleep(0.5)
    getattr(rig, how)(0, 1, 2)
    with pytest.raises(QuorumUnreachable):
        await rwlock(reader, blocking_timeout=0.15).read().acquire()
    rig.resume()
    rig.connect(0, 1, 2)
    await early.release()


async def test_reports_before_and_after_a_grant_count_together(rig: Rig) -> None:
    third, reader, other = [await rig.process() for _ in range(3)]
    early = await rwlock(third).read().acquire()
    await asyncio.sleep(0.1)
    rig.ways[2] = 0.02
    writer = writing(other)
    await asyncio.sleep(2.5 * WAY)
    # The writer enters the queue of node 1 only.
    for index in (0, 2):
        other.nodes[index].hang()
    await asyncio.sleep(2 * WAY)
    # Node 0 grants, node 1 refuses, and node 2 grants after 40 ms.
    first = reading(reader)
    await asyncio.sleep(1.5 * WAY)
    # Node 0 reports the writer before the grant of node 2, and node 2 after its own grant.
    other.nodes[0].resume()
    await asyncio.sleep(24 * WAY)
    other.nodes[2].resume()
    lease = await first
    await asyncio.sleep(0.03)
    assert all(server.queues.members(KEY) for server in rig.servers)
    late = await rwlock(reader).read().try_acquire()
    writer.cancel()
    await asyncio.wait([writer])
    assert late is None, "the grant was shared although a writer waits on all nodes"
    for held in (lease, early):
        await held.release()


async def test_a_late_command_to_leave_does_not_remove_the_next_entry(rig: Rig) -> None:
    earlier, reader, later = [await rig.process() for _ in range(3)]
    held = await rwlock(earlier).write().acquire()
    first = reading(reader)
    await asyncio.sleep(0.05)
    # Node 2 refuses the reader's attempt, and the refusal arrives late.
    for process in (earlier, reader):
        process.nodes[2].hang()
    await held.release()
    early = await first
    writer = writing(later)
    await asyncio.sleep(6 * WAY)
    late = reading(reader)
    await asyncio.sleep(3 * WAY)
    reader.nodes[2].resume()
    await asyncio.sleep(6 * WAY)
    queues = [server.queues.members(READER_QUEUE_KEYS + KEY) for server in rig.servers]
    for task in (writer, late):
        task.cancel()
    await asyncio.wait([writer, late])
    earlier.nodes[2].resume()
    await early.release()
    assert all(queues)
