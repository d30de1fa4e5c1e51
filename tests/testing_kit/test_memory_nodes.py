"""Nodes in memory: a Redlock of them behaves as one of servers, in turns, in faults, over loops and
threads.

`tests/contract/test_memory_node.py` checks each node against the contract of all nodes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from anyio.from_thread import start_blocking_portal

from aioredlock_ng import (
    ConfigurationError,
    LockHeld,
    LockLost,
    QuorumUnreachable,
    Redlock,
    RedlockClosed,
)
from aioredlock_ng.events import NodeDown, NodeUp
from aioredlock_ng.testing import LocalNodes, MemoryNodes
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng.events import Event

virtual = pytest.mark.virtual_time


async def until_lost(redlock: Redlock, fault: Callable[[], None]) -> None:
    async with asyncio.timeout(5), redlock.lock("b"):
        fault()
        await asyncio.get_running_loop().create_future()


async def test_two_managers_exclude_and_wake_each_other() -> None:
    nodes = MemoryNodes(3)
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        async with one.lock("a"):
            assert await two.lock("a").try_acquire() is None
            waiting = asyncio.create_task(two.lock("a").acquire())
            await eventually(lambda: two.stats().waiting == 1)
        lease = await waiting
        assert two.stats().wakeups == 1
        assert lease.fence
        await lease.release()
        assert not await one.locked("a")


@pytest.mark.parametrize("kind", [MemoryNodes, LocalNodes])
async def test_a_manager_of_its_nodes_takes_options(kind: type[MemoryNodes | LocalNodes]) -> None:
    nodes: Any = kind(1)
    if isinstance(nodes, LocalNodes):
        await asyncio.to_thread(nodes.start)
    async with nodes.redlock(ttl=3.0) as redlock, redlock.lock("a") as lease:
        assert lease.ttl == 3.0
    if isinstance(nodes, LocalNodes):
        await asyncio.to_thread(nodes.close)


@virtual
async def test_a_paused_minority_does_not_matter_and_a_paused_majority_does() -> None:
    nodes = MemoryNodes(3)
    async with nodes.redlock() as redlock:
        nodes.pause(0)
        async with redlock.lock("a") as lease:
            assert lease.nodes == (2, 3)
        nodes.pause(1)
        with pytest.raises(QuorumUnreachable):
            await redlock.lock("a", blocking_timeout=0).acquire()
        nodes.resume(0)
        async with redlock.lock("a", blocking_timeout=0):
            pass
        nodes.restore()
        async with redlock.lock("a", blocking_timeout=0) as lease:
            await eventually(lambda: lease.nodes == (3, 3))


@virtual
async def test_a_manager_opened_later_finds_the_pause() -> None:
    nodes = MemoryNodes(1)
    nodes.pause(0)
    async with nodes.redlock() as redlock:
        with pytest.raises(QuorumUnreachable):
            await redlock.lock("a", blocking_timeout=0).acquire()
        nodes.resume(0)
        async with redlock.lock("a"):
            pass


@virtual
async def test_a_lease_outlives_a_crashed_minority_and_its_manager_reports_the_crash() -> None:
    told: list[Event] = []
    nodes = MemoryNodes(3)
    async with nodes.redlock(sinks=[told.append]) as redlock:
        async with redlock.lock("a") as lease:
            nodes.crash(2)
            assert [state.state for state in redlock.nodes] == ["up", "up", "down"]
            await asyncio.sleep(60)
            assert lease.valid
            nodes.restart(2)
            assert redlock.nodes[2].state == "up"
        assert [event for event in told if isinstance(event, NodeUp | NodeDown)] == [
            *(NodeUp(f"memory-{index}", "memory") for index in range(3)),
            NodeDown("memory-2", "connection cut"),
            NodeUp("memory-2", "memory"),
        ]


@virtual
async def test_a_restarted_node_is_quarantined_as_a_server_is() -> None:
    nodes = MemoryNodes(1)
    async with nodes.redlock(max_ttl=20.0) as redlock:
        async with redlock.lock("a"):
            pass
        nodes.restart(0)
        with pytest.raises(QuorumUnreachable, match="quarantine"):
            await redlock.lock("a", blocking_timeout=0).acquire()
        await asyncio.sleep(0.1)
        assert redlock.nodes[0].state == "quarantined"
        nodes.advance(20.5)
        with pytest.raises(QuorumUnreachable, match="quarantine"):
            await redlock.lock("a", blocking_timeout=0).acquire()
        nodes.advance(0.5)
        async with redlock.lock("a", blocking_timeout=1):
            pass


@virtual
async def test_with_appendonly_the_keys_are_there_after_a_crash() -> None:
    for appendonly in (False, True):
        nodes = MemoryNodes(1, appendonly=appendonly)
        async with nodes.redlock() as redlock:
            lease = await redlock.lock("a").acquire()
            nodes.crash(0)
            nodes.restart(0)
            assert await redlock.locked("a") is appendonly
            lease.abandon()


@virtual
async def test_a_wiped_majority_loses_the_lease_and_a_wiped_minority_does_not() -> None:
    nodes = MemoryNodes(3)
    async with nodes.redlock() as redlock:
        async with redlock.lock("a", on_lost="flag") as lease:
            nodes.wipe(0)
            await asyncio.sleep(30)
            assert lease.valid
        with pytest.raises(LockLost, match="no longer holds"):
            await until_lost(redlock, nodes.wipe)


async def test_time_advanced_is_a_standstill_for_holder_and_nodes_alike() -> None:
    nodes = MemoryNodes(3)
    async with nodes.redlock(ttl=10.0) as redlock, nodes.redlock() as another:
        lease = await redlock.lock("a").acquire()
        nodes.advance(5.0)
        lease.check()
        assert lease.remaining() < 5.0
        with pytest.raises(LockHeld):
            await another.lock("a", blocking_timeout=0).acquire()
        began = time.monotonic()
        nodes.advance(10.0)
        async with another.lock("a", blocking_timeout=0):
            with pytest.raises(LockLost, match="deadline"):
                lease.check()
        assert time.monotonic() - began < 5


async def test_time_advanced_cancels_a_body_that_waits() -> None:
    nodes = MemoryNodes(3)
    async with nodes.redlock(ttl=10.0) as redlock:
        with pytest.raises(LockLost, match="deadline"):
            await until_lost(redlock, lambda: nodes.advance(11.0))


@virtual
async def test_a_semaphore_keeps_its_slots_through_faults_and_frees_them_after_a_standstill() -> (
    None
):
    nodes = MemoryNodes(3)
    async with nodes.redlock() as one, nodes.redlock() as two:
        nodes.crash(2)
        leases = [await manager.semaphore("gpu", 3).acquire() for manager in (one, two, one)]
        assert sorted(lease.slot for lease in leases) == [1, 2, 3]
        assert await two.semaphore("gpu", 3).try_acquire() is None
        waiting = asyncio.create_task(two.semaphore("gpu", 3).acquire())
        await eventually(lambda: two.stats().waiting == 1)
        await leases[0].release()
        leases[0] = await waiting
        nodes.advance(11)
        for lease in leases:
            with pytest.raises(LockLost):
                lease.check()
        assert await one.semaphore("gpu", 3).try_acquire() is not None


@virtual
async def test_a_read_write_lock_lasts_through_faults_and_is_free_after_a_standstill() -> None:
    nodes = MemoryNodes(3)
    async with nodes.redlock(ttl=5.0) as one, nodes.redlock(ttl=5.0) as two:
        readers = [await manager.rwlock("catalog").read().acquire() for manager in (one, two)]
        nodes.crash(0)
        assert await one.lock("catalog").try_acquire() is None
        writing = asyncio.create_task(two.rwlock("catalog").write().acquire())
        await asyncio.sleep(0.1)
        assert not writing.done()
        nodes.restart(0)
        nodes.advance(6.0)
        assert not any(reader.valid for reader in readers)
        async with asyncio.timeout(5):
            lease = await writing
        await lease.downgrade()
        async with one.rwlock("catalog").read() as reader:
            assert reader.fence == lease.fence
        await lease.release()


@virtual
async def test_latency_is_paid_each_way() -> None:
    loop, nodes = asyncio.get_running_loop(), MemoryNodes(3, latency=0.01)
    async with nodes.redlock() as redlock:
        began = loop.time()
        lease = await redlock.lock("a").acquire()
        assert loop.time() - began == pytest.approx(0.02)
        await lease.release()


@virtual
async def test_half_an_hour_of_renewals_passes_on_a_virtual_clock() -> None:
    nodes = MemoryNodes(3)
    async with nodes.redlock() as redlock, redlock.lock("a") as lease:
        await asyncio.sleep(1800)
        lease.check()
        assert redlock.stats().renewals > 300


def test_keys_outlive_a_manager_and_its_loop() -> None:
    nodes = MemoryNodes(3)

    async def hold() -> None:
        async with nodes.redlock() as redlock:
            (await redlock.lock("a", ttl=60).acquire()).abandon()

    async def look() -> bool:
        async with nodes.redlock() as redlock:
            return await redlock.locked("a")

    asyncio.run(hold())
    assert asyncio.run(look())
    nodes.wipe()
    assert not asyncio.run(look())


def test_a_manager_that_opens_again_on_another_loop_waits_for_its_releases_at_its_close() -> None:
    nodes = MemoryNodes(3, latency=0.001)
    redlock = nodes.redlock(node_timeout=5, ttl=60)

    async def hold() -> None:
        async with redlock:
            await redlock.lock("a").acquire()
        assert [node.server.get(b"a") for node in nodes._nodes] == [None] * 3

    for _ in range(2):
        asyncio.run(hold())


def test_two_loops_at_a_time_are_refused() -> None:
    nodes = MemoryNodes(1)

    async def both() -> None:
        async with nodes.redlock():
            with pytest.raises(ConfigurationError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, nodes.redlock().open())
            async with nodes.redlock() as redlock, redlock.lock("a"):
                pass

    asyncio.run(both())


def test_a_manager_that_was_never_closed_is_forgotten_with_its_loop() -> None:
    nodes = MemoryNodes(1)

    async def leave() -> Redlock:
        redlock = await nodes.redlock().open()
        assert await redlock.lock("a").try_acquire() is not None
        return redlock

    left = asyncio.run(leave())
    nodes.restart(0)
    nodes.wipe()
    left = asyncio.run(leave())

    async def go_on() -> None:
        async with nodes.redlock() as redlock:
            assert await redlock.locked("a")
            nodes.wipe()
            assert not await redlock.locked("a")
            with pytest.raises(RedlockClosed):
                await left.aclose()

    asyncio.run(go_on())


def test_faults_from_another_thread_have_happened_when_they_return() -> None:
    nodes = MemoryNodes(3)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(nodes.redlock()) as redlock,
    ):
        lease = portal.call(redlock.lock("a").acquire)
        nodes.pause(0)
        nodes.crash(1)
        assert [state.state for state in redlock.nodes] == ["up", "down", "up"]
        with pytest.raises(QuorumUnreachable):
            portal.call(redlock.inspect, "a")
        nodes.restore()
        assert portal.call(redlock.locked, "a")
        nodes.advance(11.0)
        with pytest.raises(LockLost):
            lease.check()


def test_a_fault_between_two_runs_of_a_loop_comes_first_in_the_next() -> None:
    nodes = MemoryNodes(1)
    with asyncio.Runner() as runner:
        redlock = nodes.redlock()
        runner.run(redlock.open())
        nodes.crash(0)
        with pytest.raises(QuorumUnreachable):
            runner.run(redlock.lock("a", blocking_timeout=0).acquire())
        runner.run(redlock.aclose())


async def test_a_fault_from_another_thread_reaches_a_loop_that_begins_to_run_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes, loop = MemoryNodes(1), asyncio.get_running_loop()
    # In debug mode, a loop refuses calls from other threads that would not wake it.
    loop.set_debug(True)
    async with nodes.redlock() as redlock:
        with monkeypatch.context() as patch:
            patch.setattr(loop, "is_running", lambda: False)
            await asyncio.to_thread(nodes.crash, 0)
        assert not redlock.ready


async def test_a_busy_loop_does_not_keep_a_thread_from_failing_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from aioredlock_ng.testing import memory

    monkeypatch.setattr(memory, "_FAULT_SECONDS", 0.01)
    nodes, failed = MemoryNodes(1), threading.Event()

    def fault() -> None:
        with pytest.raises(TimeoutError):
            nodes.pause(0)
        failed.set()

    async with nodes.redlock():
        thread = threading.Thread(target=fault)
        thread.start()
        assert failed.wait(5), "the event loop stands still here"
        thread.join()
        for _ in range(3):
            await asyncio.sleep(0)
        assert "paused=[]" in repr(nodes), "the fault does not come later"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: MemoryNodes(0), "count"),
        (lambda: MemoryNodes(1, latency=-1), "latency"),
        (lambda: MemoryNodes(1, latency=float("nan")), "latency"),
        (
            lambda: MemoryNodes("3"),  # type: ignore[arg-type]
            "count must be a whole number, not str",
        ),
        (
            lambda: MemoryNodes(1.5),  # type: ignore[arg-type]
            "count must be a whole number, not float",
        ),
        (lambda: MemoryNodes(True), "count"),
        (lambda: MemoryNodes(1, latency="1"), "latency"),  # type: ignore[arg-type]
        (lambda: MemoryNodes(1).advance(-1), "seconds"),
        (lambda: MemoryNodes(1).advance("1"), "seconds"),  # type: ignore[arg-type]
        (lambda: MemoryNodes(1).advance(float("inf")), "seconds"),
    ],
)
def test_an_invalid_argument_is_refused_by_name(wrong: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        wrong()


def test_a_fault_that_a_node_cannot_have_now_is_refused() -> None:
    nodes = MemoryNodes(2)
    nodes.crash(0)
    for fault in (nodes.crash, nodes.pause):
        with pytest.raises(RuntimeError, match=r"restart\(0\)"):
            fault(0)
    nodes.pause(1)
    assert repr(nodes) == "<MemoryNodes 2 paused=[1] down=[0]>"
    for fault in (nodes.pause, nodes.resume, nodes.crash, nodes.restart, nodes.wipe):
        for index in (-1, 2):
            with pytest.raises(ConfigurationError, match=f"index must be from 0 to 1, not {index}"):
                fault(index)
        with pytest.raises(ConfigurationError, match="index must be a whole number, not str"):
            fault("1")  # type: ignore[arg-type]
    assert repr(nodes) == "<MemoryNodes 2 paused=[1] down=[0]>"


async def test_a_function_that_is_begun_once_is_begun_again_after_the_time_is_advanced() -> None:
    nodes, began = MemoryNodes(3), []
    async with Redlock(nodes) as redlock:

        @redlock.once("job", within=30)
        async def run() -> None:
            began.append("run")

        assert [await run(), await run()] == [True, False]
        nodes.advance(31)
        assert [await run(), len(began)] == [True, 2]
