"""A process whose release showed waiters queues without an attempt, which would be refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import AcquireTimeout
from tests.support.rig import WAY

if TYPE_CHECKING:
    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time


async def holding_after_a_wait(rig: Rig) -> tuple[Process, Process, Any]:
    """Return a process that queued for the lock and holds it, another process, and the lease."""
    first, second = await rig.process(), await rig.process()
    lease = await second.lock("a").acquire()
    waiting = asyncio.create_task(first.lock("a").acquire())
    await asyncio.sleep(0.5)
    await lease.release()
    return first, second, await waiting


async def ring(rig: Rig) -> tuple[Process, asyncio.Task[Any]]:
    """Return a process that waited for the lock and has just released it, and the task of the
    process that gets it now.
    """
    first, second, lease = await holding_after_a_wait(rig)
    waiting = asyncio.create_task(second.lock("a").acquire())
    await asyncio.sleep(0.5)
    await lease.release()
    return first, waiting


async def visit(process: Process, order: list[Process]) -> None:
    async with process.lock("a"):
        order.append(process)


def attempts(asked: list[Any]) -> int:
    return sum(command.script.name == "acquire_guarded" for command in asked)


async def test_after_a_release_that_gave_the_lock_to_another_process_no_attempt_is_made(
    rig: Rig,
) -> None:
    first, waiting = await ring(rig)
    asked = first.questions()
    again = asyncio.create_task(first.lock("a").acquire())
    lease = await waiting
    await asyncio.sleep(0.5)
    assert attempts(asked) == 0
    assert sum(command.script.name == "stand" for command in asked) >= 3
    await lease.release()
    lease = await again
    assert attempts(asked) == 3, "one attempt, when the lock was offered"
    await lease.release()


async def test_the_ticket_after_a_release_is_above_the_tickets_of_all_waiters_at_the_release(
    rig: Rig,
) -> None:
    first, second, lease = await holding_after_a_wait(rig)
    third, order = await rig.process(), list[Any]()
    # These have waited for other locks, and so have high tickets.
    second.redlock.engine().context.tickets.see(1000)
    third.redlock.engine().context.tickets.see(2000)
    others = [asyncio.create_task(visit(process, order)) for process in (second, third)]
    await asyncio.sleep(0.5)
    await lease.release()
    await asyncio.gather(*others, visit(first, order))
    assert order == [second, third, first]


async def test_a_process_overtakes_no_other_that_waited_for_more_than_two_round_trips(
    rig: Rig,
) -> None:
    first, waiting = await ring(rig)
    third, order = await rig.process(), list[Any]()
    other = asyncio.create_task(visit(third, order))
    await asyncio.sleep(5 * WAY)
    again = asyncio.create_task(visit(first, order))
    await asyncio.sleep(0.5)
    await (await waiting).release()
    await asyncio.gather(other, again)
    assert order == [third, first]


async def test_some_time_after_the_release_an_attempt_is_made_again(rig: Rig) -> None:
    first, waiting = await ring(rig)
    await (await waiting).release()
    await asyncio.sleep(0.1)
    asked = first.questions()
    lease = await first.lock("a").acquire()
    assert attempts(asked) == 3
    assert not any(command.script.name == "stand" for command in asked)
    await lease.release()


async def test_a_wait_without_an_attempt_acquires_a_lock_that_is_free_again(rig: Rig) -> None:
    first, waiting = await ring(rig)
    await (await waiting).release()
    async with asyncio.timeout(0.5):
        lease = await first.lock("a").acquire()
    await lease.release()


async def test_a_wait_without_an_attempt_times_out_as_any_other_wait(rig: Rig) -> None:
    first, waiting = await ring(rig)
    with pytest.raises(AcquireTimeout, match=r"still held by .* after 1 s") as raised:
        await first.lock("a", blocking_timeout=1.0).acquire()
    assert raised.value.owner is not None, "the label of the holder"
    assert raised.value.retry_after is not None
    await (await waiting).release()


async def test_a_call_that_does_not_wait_makes_an_attempt_in_any_case(rig: Rig) -> None:
    first, waiting = await ring(rig)
    assert await first.lock("a").try_acquire() is None
    await (await waiting).release()
    lease = await first.lock("a").try_acquire()
    assert lease is not None
    await lease.release()


async def test_an_answer_of_too_few_nodes_shows_no_queue(rig: Rig) -> None:
    first, second, lease = await holding_after_a_wait(rig)
    waiting = asyncio.create_task(second.lock("a").acquire())
    await asyncio.sleep(0.5)
    for server in rig.servers[:2]:
        server.queues.clear()
    await lease.release()
    asked = first.questions()
    again = asyncio.create_task(first.lock("a").acquire())
    await asyncio.sleep(0.001)
    assert attempts(asked) == 3
    for task in (waiting, again):
        await (await task).release()


@pytest.mark.parametrize("after", [0.0, WAY, 2 * WAY, 3 * WAY, 0.5])
async def test_a_cancelled_wait_without_an_attempt_leaves_the_queues(
    rig: Rig, after: float
) -> None:
    first, waiting = await ring(rig)
    again = asyncio.create_task(first.lock("a").acquire())
    await asyncio.sleep(after)
    again.cancel()
    await asyncio.wait([again])
    assert again.cancelled()
    await asyncio.sleep(0.5)
    assert not any(server.queues.members(b"a") for server in rig.servers)
    await (await waiting).release()
    assert rig.clean


async def test_the_next_task_asks_for_a_further_slot_at_once_if_its_line_did_not_queue(
    rig: Rig,
) -> None:
    process = await rig.process()
    asked = process.questions()
    tasks = [asyncio.create_task(process.redlock.semaphore("s", 4).acquire()) for _ in range(3)]
    leases = await asyncio.gather(*tasks)
    assert sum(command.script.name.startswith("stand") for command in asked) == 0
    assert attempts(asked) == 3 * 3
    for lease in leases:
        await lease.release()
