"""A manager whose engine has a thread of its own, with real threads: blocked loops, several loops,
forks and ends.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import (
    ConfigurationError,
    Lease,
    LockHeld,
    LockLost,
    LockReleased,
    QuorumUnreachable,
    Redlock,
    RedlockClosed,
)
from aioredlock_ng._threaded.lease_proxy import ThreadedLease
from aioredlock_ng._threaded.mailbox import Mailbox
from aioredlock_ng.events import LeaseLost, LockAcquired, TermOutlived
from aioredlock_ng.testing import MemoryNodes, lose, lose_at
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioredlock_ng.events import Event
    from tests.support.node_set import NodeSet

PATIENCE = 30.0


@pytest.fixture
def nodes() -> MemoryNodes:
    """The connections of one manager at a time: all of them must be on one loop."""
    return MemoryNodes(3)


class OtherLoop:
    """An event loop in a thread of its own, which runs one coroutine."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        async def main() -> None:
            self.loop = asyncio.get_running_loop()
            await self._work()

        try:
            asyncio.run(main())
        except BaseException as error:
            self._error = error

    async def ended(self) -> None:
        await asyncio.to_thread(self.thread.join, PATIENCE)
        assert not self.thread.is_alive()
        if self._error is not None:
            raise self._error


def block_until(condition: Callable[[], object]) -> None:
    """Let the calling loop stand still until the condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)


def engine_thread(redlock: Redlock) -> Any:
    assert redlock._threaded is not None
    assert redlock._threaded.here is not None
    return redlock._threaded.here.thread


def die() -> None:
    raise SystemExit("on purpose")


async def test_a_block_wakes_the_engines_thread_only_for_its_acquire_and_its_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    posts: list[Mailbox] = []
    post = Mailbox.post

    def count(self: Mailbox, *args: Any) -> None:
        posts.append(self)
        post(self, *args)

    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        monkeypatch.setattr(Mailbox, "post", count)
        async with redlock.lock("a"):
            pass
        assert posts.count(engine_thread(redlock)._inbox) == 2


@pytest.mark.slow
async def test_a_body_that_blocks_its_loop_for_many_ttls_keeps_its_lock(
    three_nodes: NodeSet,
) -> None:
    async with (
        Redlock(three_nodes.urls, ttl=3.0, node_timeout=0.5, thread=True) as redlock,
        Redlock(three_nodes.urls, node_timeout=2.5) as rival,
    ):
        async with redlock.lock("a") as lease:
            began = time.monotonic()
            block_until(lambda: time.monotonic() - began > 2.5 * lease.ttl)
            lease.check()
            await lease.verify()
            assert await rival.lock("a").try_acquire() is None
        assert redlock.stats().lost == 0
        assert redlock.stats().renewals >= 4


async def test_the_engine_runs_in_a_named_daemon_thread_that_ends_with_the_manager(
    nodes: MemoryNodes,
) -> None:
    before = set(threading.enumerate())
    redlock = Redlock(nodes, thread=True)
    assert set(threading.enumerate()) <= before, "no thread before it is opened"
    async with redlock:
        (thread,) = set(threading.enumerate()) - before
        assert thread.name.startswith("aioredlock_ng:")
        assert thread.daemon
    await eventually(lambda: not thread.is_alive())


async def test_a_loss_is_true_at_once_everywhere_and_cancels_the_body_when_its_loop_runs(
    three_nodes: NodeSet,
) -> None:
    seen: list[str] = []
    async with Redlock(three_nodes.urls, node_timeout=2.5, thread=True) as redlock:

        async def take_away() -> None:
            assert await redlock.force_release("a") >= 2

        async def body() -> None:
            async with redlock.lock("a") as lease:
                block_until(lambda: lease.nodes == (3, 3))
                other = OtherLoop(take_away)
                block_until(lambda: lease.lost)
                assert not lease.valid
                with pytest.raises(LockLost):
                    raise lease.lost_error()
                seen.append("went on until its next await")
                await asyncio.sleep(PATIENCE)
                seen.append("went on")
            await other.ended()

        with pytest.raises(LockLost, match="no longer holds its key"):
            await body()
        assert seen == ["went on until its next await"]
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_a_body_that_finds_its_loss_by_check_is_not_cancelled_as_well(
    nodes: MemoryNodes,
) -> None:
    went_on = False

    async def body(redlock: Redlock) -> None:
        nonlocal went_on
        async with redlock.lock("a") as lease:
            with lose_at("a", "checked"), pytest.raises(LockLost):
                lease.check()
            # A cancellation would have been posted before the engine answers this.
            await redlock.inspect("a")
            with pytest.raises(LockLost):
                await lease.extend()
            went_on = True

    async with Redlock(nodes, thread=True) as redlock:
        with pytest.raises(LockLost):
            await body(redlock)
    assert went_on


async def test_a_body_that_finds_its_loss_by_verify_is_not_cancelled_as_well(
    nodes: MemoryNodes,
) -> None:
    went_on = False

    async def body(redlock: Redlock) -> None:
        nonlocal went_on
        async with redlock.lock("a") as lease:
            assert isinstance(lease, ThreadedLease)
            lease._thread.post(lease._engine.extender.lose, lease._record, "by a test")
            # The loop of the body stands still until the engine has declared the loss.
            while not lease.lost:
                time.sleep(0.001)
            with pytest.raises(LockLost):
                await lease.verify()
            await redlock.inspect("a")
            went_on = True

    async with Redlock(nodes, thread=True) as redlock:
        with pytest.raises(LockLost):
            await body(redlock)
    assert went_on


async def test_a_lease_that_is_abandoned_before_its_body_begins_does_not_cancel_the_body(
    nodes: MemoryNodes,
) -> None:
    def abandon(event: Event) -> None:
        if isinstance(event, LockAcquired):
            for lease in redlock.leases:
                lease.abandon()

    redlock = Redlock(nodes, thread=True, sinks=[abandon])
    async with redlock:
        async with redlock.lock("a") as lease:
            # The engine learns of the body before it answers this call.
            await redlock.wait_ready()
            await asyncio.sleep(0)
            assert not lease.lost
        assert await redlock.locked("a")


async def test_a_test_that_loses_leases_counts_each_acquire_once(nodes: MemoryNodes) -> None:
    async with Redlock(nodes, thread=True) as redlock:
        with lose_at("a", "acquired", nth=2):
            async with redlock.lock("a"):
                # A loss would have been posted before the engine answers this.
                await redlock.inspect("a")
            with pytest.raises(LockLost):
                async with redlock.lock("a"):
                    await asyncio.sleep(PATIENCE)


async def test_tasks_of_two_loops_exclude_each_other(nodes: MemoryNodes) -> None:
    inside, counts = [0], [0, 0]

    async def work(which: int) -> None:
        for _ in range(50):
            async with redlock.lock("a"):
                inside[0] += 1
                assert inside[0] == 1
                await asyncio.sleep(0)
                counts[which] += 1
                inside[0] -= 1

    async with Redlock(nodes, thread=True) as redlock:
        other = OtherLoop(lambda: work(1))
        await work(0)
        await other.ended()
    assert counts == [50, 50]


async def test_a_lease_may_be_released_by_another_loop_and_the_manager_closed_by_it(
    nodes: MemoryNodes,
) -> None:
    redlock = await Redlock(nodes, thread=True).open()
    lease = await redlock.lock("a").acquire()

    async def end() -> None:
        assert redlock.leases == (lease,)
        assert await lease.release()
        await redlock.aclose()

    await OtherLoop(end).ended()
    with pytest.raises(LockReleased):
        lease.check()
    with pytest.raises(RedlockClosed):
        await redlock.lock("a").acquire()


async def test_a_lease_whose_loop_was_closed_is_lost(nodes: MemoryNodes) -> None:
    events: list[Event] = []

    async def leave_open() -> None:
        leases.append(await redlock.lock("a").acquire())

    leases: list[Lease] = []
    async with Redlock(nodes, thread=True, sinks=[events.append]) as redlock:
        await OtherLoop(leave_open).ended()
        await eventually(lambda: leases[0].lost)
        assert "event loop of its holder was closed" in str(leases[0].lost_error())
    assert [event.cause for event in events if isinstance(event, LeaseLost)] == ["closed"]


async def test_a_loop_that_stands_still_for_the_stall_limit_loses_its_leases_and_no_other_loop_does(
    nodes: MemoryNodes,
) -> None:
    events: list[Event] = []
    mine_is_lost, over = threading.Event(), threading.Event()

    async def hold() -> None:
        async with redlock.lock("b") as lease:
            while not over.is_set():
                await asyncio.sleep(0.01)
                lease.check()

    async def body() -> None:
        async with redlock.lock("a") as lease:
            block_until(lambda: lease.lost)
            mine_is_lost.set()
            await asyncio.sleep(PATIENCE)

    async with Redlock(nodes, thread=True, stall_limit=2.0, sinks=[events.append]) as redlock:
        other = OtherLoop(hold)
        began = time.monotonic()
        with pytest.raises(LockLost, match="stood still for 2"):
            await body()
        assert mine_is_lost.is_set()
        assert time.monotonic() - began >= 2.0
        over.set()
        await other.ended()
        assert (redlock.stats().stalled, redlock.stats().lost) == (1, 1)
    assert [(event.resource, event.cause) for event in events if isinstance(event, LeaseLost)] == [
        ("a", "stalled")
    ]


@pytest.mark.slow
async def test_without_a_stall_limit_a_loop_that_stands_still_keeps_its_leases(
    nodes: MemoryNodes,
) -> None:
    async with Redlock(nodes, ttl=4.0, thread=True) as redlock, redlock.lock("a") as lease:
        renewed = redlock.stats().renewals
        # After four renewals, more than a ttl has passed.
        block_until(lambda: redlock.stats().renewals >= renewed + 4)
        lease.check()


async def test_a_manager_whose_thread_dies_loses_its_leases_and_says_so(nodes: MemoryNodes) -> None:
    events: list[Event] = []
    redlock = await Redlock(nodes, thread=True, sinks=[events.append]).open()
    waiting = asyncio.ensure_future(redlock.lock("a").acquire())
    first = await waiting
    queued = asyncio.ensure_future(redlock.lock("a").acquire())
    await eventually(lambda: redlock.stats().waiting == 1)

    async def body() -> None:
        async with redlock.lock("b") as lease:
            engine_thread(redlock).post(die)
            await eventually(lambda: lease.lost)
            with pytest.raises(LockLost, match="SystemExit: on purpose"):
                lease.check()
            # The loss was found by the body itself. It is cancelled only if it goes on.
            raise lease.lost_error()

    with pytest.raises((LockLost, asyncio.CancelledError)):
        await body()
    assert first.lost
    assert not await first.release()
    await first.wait_lost()
    with pytest.raises(RedlockClosed, match="SystemExit: on purpose"):
        await queued
    for call in (redlock.lock("a").acquire, lambda: redlock.inspect("a"), redlock.open):
        with pytest.raises(RedlockClosed, match="SystemExit: on purpose"):
            await call()
    assert not redlock.ready

    def losses() -> set[tuple[str, str]]:
        return {(event.resource, event.cause) for event in events if isinstance(event, LeaseLost)}

    await eventually(lambda: losses() == {("a", "unrenewed"), ("b", "unrenewed")})
    await redlock.aclose()
    async with redlock:
        assert await redlock.lock("c").try_acquire() is not None


async def test_a_dying_thread_is_named_before_it_declares_its_leases_lost_and_is_awaited_by_aclose(
    nodes: MemoryNodes,
) -> None:
    redlock = await Redlock(nodes, thread=True).open()
    lease = await redlock.lock("a").acquire()
    thread, may_end = engine_thread(redlock), threading.Event()
    last_act = thread.last_act

    async def wait_first() -> None:
        assert may_end.wait(PATIENCE)
        await last_act()

    thread.last_act = wait_first
    thread.post(die)
    await eventually(lambda: lease.lost)
    with pytest.raises(LockLost, match="SystemExit: on purpose") as raised:
        lease.check()
    assert raised.value.elapsed < lease.ttl / 2
    closing = asyncio.ensure_future(redlock.aclose())
    await asyncio.sleep(0.05)
    assert not closing.done()
    may_end.set()
    await closing
    assert thread.ended.done()


async def test_a_sink_may_close_the_manager_on_the_thread_itself(nodes: MemoryNodes) -> None:
    closing: list[asyncio.Task[None]] = []

    def close(event: Event) -> None:
        if isinstance(event, LockAcquired):
            closing.append(asyncio.get_running_loop().create_task(redlock.aclose()))

    redlock = await Redlock(nodes, thread=True, sinks=[close]).open()
    thread = engine_thread(redlock)
    with suppress(RedlockClosed):
        await redlock.lock("a").acquire()
    await eventually(thread.ended.done)
    assert closing[0].done()
    assert closing[0].exception() is None
    async with Redlock(nodes) as other:
        assert await other.lock("a").try_acquire() is not None


async def test_a_sink_that_exits_keeps_no_lease_of_a_dying_thread_from_being_lost(
    nodes: MemoryNodes,
) -> None:
    def exit_again(event: Event) -> None:
        if isinstance(event, LeaseLost):
            raise SystemExit("again")

    redlock = await Redlock(nodes, thread=True, sinks=[exit_again]).open()
    leases = [await redlock.lock(name).acquire() for name in "ab"]
    engine_thread(redlock).post(die)
    await eventually(lambda: all(lease._record.reason for lease in leases))
    await asyncio.wait_for(redlock.aclose(), PATIENCE)
    for lease in leases:
        with pytest.raises(LockLost, match="SystemExit: on purpose"):
            lease.check()


async def test_further_exits_do_not_keep_a_dying_thread_from_losing_its_leases(
    nodes: MemoryNodes,
) -> None:
    redlock = await Redlock(nodes, thread=True).open()
    leases = [await redlock.lock(name).acquire() for name in "ab"]
    thread = engine_thread(redlock)

    def die_often() -> None:
        for after in (0.0, 0.0, 0.0, 0.001, 0.002):
            thread._loop.call_later(after, die)

    thread.post(die_often)
    await eventually(thread.ended.done)
    for lease in leases:
        assert lease._record.reason, "it was declared lost"
    await asyncio.wait_for(redlock.aclose(), PATIENCE)


async def test_a_cancelled_close_on_the_thread_itself_ends_the_thread(nodes: MemoryNodes) -> None:
    closing: list[asyncio.Task[None]] = []

    async def close() -> None:
        closing.append(asyncio.get_running_loop().create_task(redlock.aclose()))
        await asyncio.sleep(0)
        closing[0].cancel()

    def close_and_cancel(event: Event) -> None:
        if isinstance(event, LockAcquired):
            closers.append(asyncio.get_running_loop().create_task(close()))

    closers: list[asyncio.Task[None]] = []
    redlock = await Redlock(nodes, thread=True, sinks=[close_and_cancel]).open()
    thread = engine_thread(redlock)
    with suppress(RedlockClosed):
        await redlock.lock("a").acquire()
    await eventually(thread.ended.done)
    assert closing[0].cancelled()
    async with Redlock(nodes) as other:
        assert await other.lock("a").try_acquire() is not None, "it was released"


async def test_the_death_of_the_thread_cancels_a_body_that_does_not_check(
    nodes: MemoryNodes,
) -> None:
    redlock = await Redlock(nodes, thread=True).open()

    async def body() -> None:
        async with redlock.lock("a"):
            engine_thread(redlock).post(die)
            await asyncio.sleep(PATIENCE)

    with pytest.raises(LockLost, match="SystemExit: on purpose"):
        await body()
    await redlock.aclose()


async def test_a_close_ends_bodies_and_waiters(nodes: MemoryNodes) -> None:
    redlock = await Redlock(nodes, thread=True).open()
    entered = asyncio.Event()

    async def body() -> None:
        async with redlock.lock("a"):
            entered.set()
            await asyncio.sleep(PATIENCE)

    holder = asyncio.ensure_future(body())
    await entered.wait()
    waiter = asyncio.ensure_future(redlock.lock("a").acquire())
    await eventually(lambda: redlock.stats().waiting == 1)
    await redlock.aclose()
    with pytest.raises(LockLost, match="was closed"):
        await holder
    with pytest.raises(RedlockClosed):
        await waiter


async def test_a_manager_must_be_opened_and_only_once(nodes: MemoryNodes) -> None:
    redlock = Redlock(nodes, thread=True)
    assert not redlock.ready
    assert "closed" in repr(redlock)
    assert redlock.leases == ()
    calls: list[Callable[[], Any]] = [
        redlock.lock("a").acquire,
        lambda: redlock.inspect("a"),
        redlock.wait_ready,
    ]
    for call in calls:
        with pytest.raises(RedlockClosed, match="not open"):
            await call()
    with pytest.raises(RedlockClosed, match="not open"):
        redlock.stats()
    async with redlock:
        assert redlock.ready
        assert "open" in repr(redlock)
        await redlock.wait_ready(0)
        with pytest.raises(RedlockClosed, match="open already"):
            await redlock.open()
    await redlock.aclose()


async def test_a_manager_that_cannot_open_leaves_no_thread(three_nodes: NodeSet) -> None:
    before = set(threading.enumerate())
    same = three_nodes.urls[0].replace("127.0.0.1", "localhost")
    # A busy machine may take seconds for a connection, and a node without one is compared with no
    # other.
    redlock = Redlock([*three_nodes.urls[:2], same], connect_timeout=PATIENCE, thread=True)
    with pytest.raises(ConfigurationError, match="same server"):
        await redlock.open()
    await eventually(
        lambda: (
            not [
                one
                for one in set(threading.enumerate()) - before
                if one.name.startswith("aioredlock_ng:")
            ]
        )
    )
    assert not redlock.ready


async def test_a_cancelled_opening_leaves_no_thread(start_server: Callable[..., Any]) -> None:
    server = start_server()
    server.pause()
    before = set(threading.enumerate())
    redlock = Redlock([server.url], node_timeout=2.5, connect_timeout=PATIENCE, thread=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await redlock.open()
    await eventually(
        lambda: (
            not [
                one
                for one in set(threading.enumerate()) - before
                if one.name.startswith("aioredlock_ng:")
            ]
        )
    )
    server.resume()
    async with redlock:
        assert await redlock.lock("a").try_acquire() is not None


async def test_events_are_sent_by_the_engines_thread_in_the_context_of_the_caller(
    nodes: MemoryNodes,
) -> None:
    request: ContextVar[str] = ContextVar("request")
    seen: list[tuple[str, str]] = []

    def sink(event: Event) -> None:
        if isinstance(event, LockAcquired):
            seen.append((request.get(), threading.current_thread().name))

    async with Redlock(nodes, thread=True, sinks=[sink]) as redlock:
        name = engine_thread(redlock)._thread.name
        request.set("42")
        async with redlock.lock("a"):
            pass
    assert seen == [("42", name)]


async def test_an_event_of_an_election_is_sent_in_the_context_of_its_candidate(
    nodes: MemoryNodes,
) -> None:
    request, seen = ContextVar("request", default="none"), list[tuple[type, str]]()

    def sink(event: Event) -> None:
        seen.append((type(event), request.get()))

    async with Redlock(nodes, thread=True, sinks=[sink]) as redlock:
        thread, blocks, go = engine_thread(redlock), threading.Event(), threading.Event()

        async def another() -> None:
            request.set("another")
            thread.post(lambda: None)

        request.set("candidate")
        async with redlock.election("scheduler"):
            thread.post(lambda: (blocks.set(), go.wait(PATIENCE)))
            assert await asyncio.to_thread(blocks.wait, PATIENCE)
            # The other task wakes the engine, which then calls both posts together.
            await asyncio.create_task(another())
            redlock.engine().context.emit(TermOutlived("scheduler", None, 0.0))
            go.set()
    assert [name for kind, name in seen if kind is TermOutlived] == ["candidate"]


async def test_an_outlived_lease_is_reported_in_the_context_of_its_candidate(
    nodes: MemoryNodes,
) -> None:
    request, seen = ContextVar("request", default="none"), list[str]()
    reported = asyncio.Event()
    loop = asyncio.get_running_loop()

    def sink(event: Event) -> None:
        if isinstance(event, TermOutlived):
            seen.append(request.get())
            loop.call_soon_threadsafe(reported.set)

    async with Redlock(nodes, thread=True, sinks=[sink]) as redlock:

        async def main(lease: Lease) -> None:
            # This call reaches the engine in the context of another task.
            Context().run(lease.lose, "on purpose")
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await reported.wait()

        request.set("candidate")
        with pytest.raises(LockLost):
            await redlock.election("scheduler", rejoin=False).run(main)
    assert seen == ["candidate"]


async def test_a_task_that_would_wait_for_itself_is_refused(nodes: MemoryNodes) -> None:
    async with Redlock(nodes, thread=True) as redlock, redlock.lock("a"):
        with pytest.raises(LockHeld, match="this very task"):
            await redlock.lock("a").acquire()


async def test_the_label_names_the_task_that_holds_the_lock(nodes: MemoryNodes) -> None:
    async def hold() -> None:
        async with redlock.lock("a"):
            info = await eventually(lambda: labelled(redlock))
            assert info.endswith(":the holder")

    async def labelled(redlock: Redlock) -> str:
        owner = (await redlock.inspect("a")).owner
        return "" if owner is None else owner.label

    async with Redlock(nodes, thread=True) as redlock:
        await asyncio.create_task(hold(), name="the holder")


async def test_every_method_of_a_lease_and_a_manager_works_from_the_callers_loop(
    nodes: MemoryNodes,
) -> None:
    async with Redlock(nodes, thread=True) as redlock:
        async with redlock.lock("a", ttl=5.0) as lease:
            assert isinstance(lease, Lease)
            await lease.verify()
            await lease.extend(9.0)
            assert lease.remaining() > 6
            assert lease.ttl == 9.0
            assert lease.nodes[1] == 3
            assert (await redlock.inspect("a")).token == lease.token
            assert await redlock.locked("a")
            assert redlock.leases == (lease,)
            assert [node.state for node in redlock.nodes] == ["up"] * 3
            assert "held" in repr(lease)
        assert not await redlock.locked("a")
        taken = await redlock.lock("a").try_acquire()
        assert taken is not None
        assert await redlock.lock("a").try_acquire() is None
        taken.abandon()
        await taken.wait_lost()
        assert not taken.lost
        lost = await redlock.lock("b").acquire()
        await lose(lost)
        assert lost.lost


async def test_a_semaphore_gives_each_holder_a_slot_and_lists_the_holders(
    nodes: MemoryNodes,
) -> None:
    async with Redlock(nodes, thread=True) as redlock:
        gpu = redlock.semaphore("gpu", 2)
        async with gpu as first, gpu as second:
            assert {first.slot, second.slot} == {1, 2}
            assert await gpu.try_acquire() is None
            with pytest.raises(LockHeld, match="this very task holds it"):
                await gpu.acquire()
            tokens = {slot.token for slot in (await gpu.inspect()).slots}
            assert tokens == {first.token, second.token}
        free = await gpu.try_acquire()
        assert free is not None
        assert (await gpu.inspect()).held == 1
        await free.release()
        assert (await gpu.inspect()).held == 0


@pytest.mark.slow
async def test_a_holder_of_a_slot_that_blocks_its_loop_keeps_it(three_nodes: NodeSet) -> None:
    async with (
        Redlock(three_nodes.urls, ttl=4.0, node_timeout=0.5, thread=True) as redlock,
        Redlock(three_nodes.urls, node_timeout=2.5) as rival,
    ):
        async with redlock.semaphore("gpu", 1) as lease:
            began = time.monotonic()
            block_until(lambda: time.monotonic() - began > 1.5 * lease.ttl)
            await lease.verify()
            assert await rival.semaphore("gpu", 1).try_acquire() is None
        assert redlock.stats().lost == 0


async def test_tasks_of_two_loops_are_never_more_than_the_limit_of_a_semaphore(
    nodes: MemoryNodes,
) -> None:
    guard, inside, most = threading.Lock(), set[int](), [0]

    async def visit() -> None:
        for _ in range(20):
            async with redlock.semaphore("gpu", 2) as lease:
                with guard:
                    assert lease.slot not in inside, "two leases have the same slot"
                    inside.add(lease.slot)
                    most[0] = max(most[0], len(inside))
                await eventually(lambda: most[0] >= 2)
                with guard:
                    inside.remove(lease.slot)

    async def work() -> None:
        await asyncio.gather(visit(), visit())

    async with Redlock(nodes, thread=True) as redlock:
        other = OtherLoop(work)
        await work()
        await other.ended()
    assert most == [2]


async def test_a_min_hold_keeps_the_lock_after_its_release(nodes: MemoryNodes) -> None:
    async with Redlock(nodes, thread=True) as redlock:
        async with redlock.lock("slot", min_hold=30.0):
            pass
        assert await redlock.lock("slot").try_acquire() is None


async def test_a_lease_that_a_thread_still_uses_is_released_when_the_thread_has_ended(
    nodes: MemoryNodes,
) -> None:
    waiting: list[Callable[[], None]] = []

    def still_used(then: Callable[[], None]) -> bool:
        waiting.append(then)
        return threading.current_thread() is here

    here = threading.current_thread()
    async with Redlock(nodes, thread=True) as redlock:
        lease = await redlock.lock("a").acquire()
        lease.used_by(still_used)
        assert await lease.release()
        lease.check()
        (ended,) = waiting
        ended()
        await eventually(lambda: not lease.valid)
        assert not lease.lost
        assert await redlock.lock("a").try_acquire() is not None


async def test_a_guarded_function_and_an_election_work(nodes: MemoryNodes) -> None:
    async with Redlock(nodes, thread=True) as redlock:

        @redlock.guard("job:{number}")
        async def job(number: int) -> bool:
            return await redlock.locked(f"job:{number}")

        assert await job(7)
        leader = redlock.election("chief", label="ann", ttl=3.0)
        watching = leader.watch()
        async with leader as lease:
            lease.check()
            assert leader.leading
            assert await anext(watching) == "ann"
        assert await anext(watching) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"thread": 1}, "thread must be True or False"),
        ({"stall_limit": 5.0}, "stall_limit needs thread=True"),
        ({"thread": True, "stall_limit": 0}, "stall_limit must be a finite positive number"),
    ],
    ids=["thread", "no thread", "zero"],
)
def test_wrong_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Redlock(["redis://127.0.0.1:1"], **options)


def in_child(work: Callable[[], object]) -> int:
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_opens_anew_and_holds_nothing_of_its_parents(three_nodes: NodeSet) -> None:
    redlock = Redlock(three_nodes.urls, node_timeout=2.5, thread=True)
    leases: list[Lease] = []

    async def begin() -> None:
        await redlock.open()
        leases.append(await redlock.lock("a", ttl=20).acquire())

    async def use() -> None:
        (lease,) = leases
        assert lease.lost
        with pytest.raises(LockLost, match="before the fork"):
            lease.check()
        assert not await lease.release()
        assert redlock.leases == ()
        assert await redlock.lock("a").try_acquire() is None
        async with redlock.lock("b") as own:
            await own.verify()
        await redlock.aclose()

    async def end() -> None:
        await leases[0].verify()
        assert await leases[0].release()
        await redlock.aclose()

    asyncio.run(begin())
    # The loop is closed, but its lease lives for as long as the engine has not looked.
    assert in_child(lambda: asyncio.run(use())) == 0
    assert in_child(lambda: asyncio.run(redlock.aclose())) == 0
    asyncio.run(end())


EXIT = """
import asyncio, sys
from aioredlock_ng import Redlock

async def main():
    redlock = await Redlock(sys.argv[1].split(","), thread=True).open()
    global kept
    kept = redlock, await redlock.lock("a", ttl=30).acquire()
    asyncio.ensure_future(redlock.lock("a").acquire())
    while not redlock.stats().waiting:
        await asyncio.sleep(0)
    print("held", flush=True)

asyncio.run(main())
"""


def test_an_exit_of_the_interpreter_releases_held_locks_and_does_not_hang(
    three_nodes: NodeSet,
) -> None:
    command = [sys.executable, "-W", "error", "-c", EXIT, ",".join(three_nodes.urls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "held\n", "")
    assert three_nodes.left() == [set()] * 3


async def test_an_unreachable_quorum_is_named(three_nodes: NodeSet) -> None:
    async with Redlock(["redis://127.0.0.1:1"], thread=True) as redlock:
        with pytest.raises(QuorumUnreachable):
            await redlock.lock("a", blocking_timeout=0).acquire()
        with pytest.raises(QuorumUnreachable):
            await redlock.wait_ready(0)


SELECTOR = """
import os, sys
from aioredlock_ng.sync import Redlock

redlock = Redlock(sys.argv[1].split(",")).open()
lease = redlock.lock("a", ttl=30).acquire()
thread = redlock._process.here.thread
# The process closes all its files, as some ways to become a daemon do.
os.close(thread._loop._selector.fileno())
thread.post(print, "awake")
assert thread.ended.wait(10)
assert lease.lost
redlock.close()
print("closed", flush=True)
os._exit(0)
"""


def test_a_thread_whose_selector_fails_ends_and_lets_no_caller_wait(three_nodes: NodeSet) -> None:
    command = [sys.executable, "-c", SELECTOR, ",".join(three_nodes.urls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("closed\n")


async def test_a_close_by_the_loop_of_a_body_releases_its_lock(nodes: MemoryNodes) -> None:
    for _ in range(20):
        redlock = await Redlock(nodes, thread=True).open()
        inside = asyncio.Event()

        async def body(redlock: Redlock, inside: asyncio.Event) -> None:
            async with redlock.lock("a"):
                inside.set()
                await asyncio.sleep(PATIENCE)

        working = asyncio.create_task(body(redlock, inside))
        await inside.wait()
        await redlock.aclose()
        with pytest.raises(LockLost):
            await working
        async with Redlock(nodes) as other:
            assert not await other.locked("a")


async def test_a_close_by_another_loop_lets_the_lock_of_a_body_expire(nodes: MemoryNodes) -> None:
    redlock = await Redlock(nodes, thread=True).open()

    async def body() -> None:
        async with redlock.lock("a", on_lost="flag") as lease:
            await asyncio.to_thread(asyncio.run, redlock.aclose())
            assert lease.lost
            async with Redlock(nodes) as other:
                assert await other.locked("a")

    with pytest.raises(LockLost):
        await body()
