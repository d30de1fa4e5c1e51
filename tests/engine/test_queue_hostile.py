"""Waiting under adverse conditions.

Events fall into the same tick, messages are missing, or nodes answer differently than before.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from aioredlock_ng import LockNotAcquired, QuorumUnreachable
from aioredlock_ng._core.votes import Refusal
from aioredlock_ng._engine.attempt.acquisition import Acquisition
from aioredlock_ng._nodes.memory import MemoryNode
from tests.support.rig import WAY, Rig, occupied

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Raw
    from aioredlock_ng._nodes.memory import Connection
    from aioredlock_ng._scripts import Command

pytestmark = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
def twice(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Attempts that began while another one of the same acquisition was under way."""
    seen: list[str] = []
    attempt = Acquisition.attempt

    def noted(self: Acquisition, *args: object, **more: object) -> None:
        if self.asking and not self.future.done():
            seen.append(self.resource)
        attempt(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Acquisition, "attempt", noted)
    return seen


async def test_a_task_that_inherits_a_line_without_a_quorum_makes_one_attempt_at_a_time(
    rig: Rig, twice: list[str]
) -> None:
    process = await rig.process()
    rig.hang(0, 1)
    first = asyncio.ensure_future(process.lock("a", blocking_timeout=0.11).acquire())
    await asyncio.sleep(0)
    second = asyncio.ensure_future(process.lock("a").acquire())
    with pytest.raises(QuorumUnreachable):
        await first
    await asyncio.sleep(1.0)
    assert twice == []
    rig.resume()
    await (await second).release()


async def test_a_task_that_joins_as_the_first_leaves_makes_one_attempt_at_a_time(
    rig: Rig, twice: list[str]
) -> None:
    holder, process = await rig.process(), await rig.process()
    lease = await holder.lock("a").acquire()
    first = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.1)
    release = asyncio.ensure_future(lease.release())
    await asyncio.sleep(WAY / 2)
    # The messages about the offers come before the answers to the requests of the second waiter.
    first.cancel()
    second = asyncio.ensure_future(process.lock("a").acquire())
    await (await second).release()
    await release
    assert twice == []


async def test_a_release_in_the_tick_in_which_the_first_waiter_left_has_one_successor(
    rig: Rig, twice: list[str]
) -> None:
    holder, process = await rig.process(), await rig.process()
    lease = await holder.lock("a", ttl=1.0, auto_extend=False, on_lost="flag").acquire()
    first, second = (asyncio.ensure_future(process.lock("a").acquire()) for _ in range(2))
    await asyncio.sleep(0.1)
    for server in rig.servers:
        server.forget_trackers()
        server.delete(b"a")
    # Past the line.
    mine = await process.lock("a", blocking_timeout=0).acquire()
    first.cancel()
    release = asyncio.ensure_future(mine.release())
    theirs = await second
    assert twice == []
    await theirs.release()
    await release
    assert [server.queues.members(b"a") for server in rig.servers] == [[], [], []]
    await lease.release()


async def test_a_line_leaves_the_queues_if_its_first_gives_up_while_this_process_holds_the_lock(
    rig: Rig,
) -> None:
    process = await rig.process()
    rig.occupy(b"a", ttl=60)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.5)
    for server in rig.servers:
        # Without a word to the waiter.
        server.forget_trackers()
        server.delete(b"a")
    lease = await process.lock("a", blocking_timeout=0).acquire()
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0.1)
    await lease.release()
    await asyncio.sleep(0.1)
    assert [server.queues.members(b"a") for server in rig.servers] == [[], [], []]
    assert rig.clean
    lines = process.redlock._engine.lines  # type: ignore[union-attr]
    assert (occupied(lines), lines._standing) == ([], {})


async def test_a_waiter_that_came_while_all_nodes_were_down_is_notified_of_its_offer(
    rig: Rig,
) -> None:
    process, holder = await rig.process(), await rig.process()
    for node in process.nodes:
        node.disconnect()
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.1)
    lease = await holder.lock("a").acquire()
    before = asyncio.ensure_future(holder.lock("a", fair=True).acquire())
    await asyncio.sleep(0.05)
    for node in process.nodes:
        node.connect()
    # By now it stands behind the other one.
    await asyncio.sleep(1.5)
    await lease.release()
    second = await before
    released_at = now()
    await second.release()
    third = await waiting
    assert now() - released_at < 0.05
    await third.release()


async def test_one_node_without_messages_does_not_make_a_waiter_poll(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        MemoryNode,
        "messages",
        property(lambda node: node.ready and node.server is not rig.servers[0]),
    )
    # It answers among the first.
    rig.ways[:] = [0.001, 0.002, 0.003]
    process = await rig.process()
    rig.occupy(b"a", ttl=60)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    asked = process.questions()
    await asyncio.sleep(20.0)
    assert sum(command.script.name == "stand" for command in asked) < 100
    rig.vacate(b"a")
    await (await waiting).release()


async def test_nested_locks_that_wait_for_each_other_end_without_messages_too(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryNode, "messages", property(lambda _: False))
    one, other = await rig.process(), await rig.process()
    inner = await one.lock("b").acquire()
    both = asyncio.ensure_future(other.lock("a", "b").acquire())
    await asyncio.sleep(0.5)
    # The other one keeps "a" for the time being, and waits for "b".
    nested = await one.lock("a", blocking_timeout=10.0).acquire()
    await nested.release()
    await inner.release()
    await (await both).release()


async def test_a_node_that_could_not_grant_is_asked_again_once_it_can(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a", ttl=60, on=[1, 2])
    rig.refuse("OOM command not allowed when used memory > 'maxmemory'.", 0)
    waiting = asyncio.ensure_future(process.lock("a").acquire())
    await asyncio.sleep(0.5)
    rig.refuse(None, 0)
    rig.vacate(b"a", on=[1])
    before = now()
    lease = await waiting
    assert now() - before < 11.0
    await lease.release()


async def test_a_node_that_cannot_grant_is_not_asked_in_a_loop(rig: Rig) -> None:
    process = await rig.process()
    rig.occupy(b"a", ttl=600, on=[2])
    server = rig.servers[0]
    execute = server.execute

    def full(command: Command, by: Connection) -> Raw | Refusal:
        return Refusal("OOM") if command.script.name.startswith("acquire") else execute(command, by)

    server.execute = full  # type: ignore[method-assign]
    with pytest.raises(LockNotAcquired):
        await process.lock("a", blocking_timeout=30.0).acquire()
    assert process.redlock.stats().attempts < 30


async def test_the_first_waiter_is_notified_of_a_forced_release(rig: Rig) -> None:
    holder, first, second = [await rig.process() for _ in range(3)]
    await holder.lock("a", on_lost="flag").acquire()
    waiting = [asyncio.ensure_future(process.lock("a").acquire()) for process in (first, second)]
    await asyncio.sleep(0.1)
    for server in rig.servers:
        # Only the messages can report the release.
        server.forget_trackers()
    before = now()
    assert await holder.redlock.force_release("a") == 3
    for waiter in waiting:
        await (await waiter).release()
    assert now() - before < 0.05
    assert rig.clean


async def test_a_waiter_that_was_served_leaves_no_reference_cycle(rig: Rig) -> None:
    holder, process = await rig.process(), await rig.process()
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            lease = await holder.lock("a").acquire()
            waiting = asyncio.ensure_future(process.lock("a").acquire())
            await asyncio.sleep(0.05)
            await lease.release()
            await (await waiting).release()
            del lease, waiting
            await asyncio.sleep(1.0)
        # The tasks of the sleeps, and of nothing else.
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kept = {type(thing).__name__ for thing in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert kept & {"Round", "Acquisition", "Place", "Line", "LeaseRecord", "Outlook"} == set()
