"""Several event loops use one object of a manager at the same time."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import aioredlock_ng.lock
from aioredlock_ng import Redlock
from aioredlock_ng._leases.open_blocks import Bodies
from aioredlock_ng._threaded.mailbox import Mailbox, home
from aioredlock_ng.testing import MemoryNodes
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import pytest

    from aioredlock_ng import Election, Lease
    from aioredlock_ng.testing import LocalServer

PATIENCE = 20.0


class Loop(threading.Thread):
    """A thread with an event loop of its own, which runs one coroutine.

    Attributes:
        outcome: The result or the error of the coroutine.
    """

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        super().__init__(name=name)
        self._work = work
        self.outcome: object = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = asyncio.run(self._work())
        except BaseException as error:
            self.outcome = error


def wait(event: threading.Event) -> None:
    assert event.wait(PATIENCE)


async def leader_of(election: Election) -> Loop:
    """Return another loop, on which a candidate leads until its term ends."""
    began = threading.Event()

    async def main(_: Lease) -> None:
        began.set()
        await asyncio.Event().wait()

    leading = Loop("leading", lambda: election.run(main))
    await asyncio.to_thread(wait, began)
    return leading


async def outcomes(*loops: Loop) -> list[object]:
    for loop in loops:
        await asyncio.to_thread(loop.join, PATIENCE)
    return [loop.outcome for loop in loops]


async def test_a_leader_resigns_by_a_call_from_another_loop() -> None:
    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        election = redlock.election("scheduler")
        leading = await leader_of(election)
        # A wake-up by the other loop's thread may go unnoticed until the timer of the timeout.
        async with asyncio.timeout(PATIENCE) as patience:
            assert await election.resign()
        assert asyncio.get_running_loop().time() < (patience.when() or 0.0) - PATIENCE / 2
        assert await outcomes(leading) == [None]
        assert not await election.resign()


async def test_a_cancelled_resignation_from_another_loop_goes_on() -> None:
    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        election = redlock.election("scheduler")
        leading = await leader_of(election)
        resigning = asyncio.create_task(election.resign())
        await asyncio.sleep(0)
        resigning.cancel()
        await asyncio.wait([resigning])
        assert resigning.cancelled()
        assert await outcomes(leading) == [None]
        assert redlock.leases == ()


async def test_a_resignation_from_another_loop_outlasts_the_end_of_the_leaders_loop() -> None:
    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        election, began = redlock.election("scheduler"), threading.Event()
        cleans_up, ends = threading.Event(), list[bool]()

        async def main(_: Lease) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                cleans_up.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0.1)
                    ends.append(True)

        async def lead() -> None:
            # This function returns while the body cleans up, so the loop cancels all tasks.
            leading = asyncio.create_task(election.run(main))
            await asyncio.to_thread(wait, cleans_up)
            assert not leading.done()

        leader = Loop("leading", lead)
        await asyncio.to_thread(wait, began)
        assert await asyncio.wait_for(election.resign(), PATIENCE)
        assert ends
        assert await outcomes(leader) == [None]


async def test_a_resignation_that_meets_the_end_of_the_leaders_loop_is_not_cancelled() -> None:
    """The loop ends, and cancels its tasks, as soon as it has read the resignation."""
    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        election, blocks, go = redlock.election("scheduler"), threading.Event(), threading.Event()

        async def lead() -> None:
            async with asyncio.timeout(PATIENCE):
                leading = asyncio.create_task(election.run(lambda _: asyncio.Event().wait()))
                while not election.leading:
                    await asyncio.sleep(0.001)
            blocks.set()
            wait(go)
            assert not leading.done()

        leader = Loop("leading", lead)
        await asyncio.to_thread(wait, blocks)
        resigning = asyncio.create_task(election.resign())
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.wait_for(resigning, PATIENCE)
        assert redlock.leases == ()
        assert await outcomes(leader) == [None]


async def test_a_resignation_ends_if_the_leaders_loop_is_closed_before_it_reads_it() -> None:
    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        election, loop = redlock.election("scheduler"), asyncio.new_event_loop()
        stopped, close = threading.Event(), threading.Event()

        async def main(_: Lease) -> None:
            loop.stop()
            await asyncio.Event().wait()

        def lead() -> asyncio.Task[None]:
            task = loop.create_task(election.run(main))
            loop.run_forever()
            stopped.set()
            wait(close)
            loop.close()
            return task

        leading = asyncio.create_task(asyncio.to_thread(lead))
        await asyncio.to_thread(wait, stopped)
        resigning = asyncio.create_task(election.resign())
        await asyncio.sleep(0)
        close.set()
        task = await leading
        assert not await asyncio.wait_for(resigning, PATIENCE)
        task._log_destroy_pending = False  # type: ignore[attr-defined]


async def test_a_candidate_whose_loop_was_closed_resigns_without_an_error() -> None:
    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        election, loop = redlock.election("scheduler"), asyncio.new_event_loop()

        async def main(_: Lease) -> None:
            loop.stop()
            await asyncio.Event().wait()

        def lead() -> asyncio.Task[None]:
            task = loop.create_task(election.run(main))
            loop.run_forever()
            loop.close()
            return task

        task = await asyncio.to_thread(lead)
        assert not await election.resign()
        task._log_destroy_pending = False  # type: ignore[attr-defined]


async def test_a_grant_to_a_task_of_a_closed_loop_is_given_back_at_once() -> None:
    """The loop had still to run callbacks of the engine when it was closed."""
    async with Redlock(MemoryNodes(3), thread=True, ttl=40.0) as redlock:
        held, loop = await redlock.lock("order").acquire(), asyncio.new_event_loop()

        def wait_in_vain() -> asyncio.Task[Lease]:
            task = loop.create_task(redlock.lock("order").acquire())
            homes: list[Mailbox] = []
            loop.call_soon(lambda: homes.append(home()))
            loop.call_soon(loop.stop)
            loop.run_forever()
            homes[0].post(print)
            loop.close()
            return task

        task = await asyncio.to_thread(wait_in_vain)
        while not redlock.stats().waiting:
            await asyncio.sleep(0.001)
        assert await held.release()
        async with redlock.lock("order", blocking_timeout=PATIENCE):
            pass
        assert not task.done()
        task._log_destroy_pending = False  # type: ignore[attr-defined]


async def test_the_waiting_tasks_of_a_closed_loop_leave_the_queue_while_the_lock_is_held(
    start_server: Callable[..., LocalServer],
) -> None:
    url = start_server().url
    # A server that is paused for longer than the timeout fails the calls of `inspect`.
    options: Any = {"node_timeout": 2.5}
    async with (
        Redlock([url], **options) as holder,
        Redlock([url], thread=True, **options) as redlock,
    ):
        loop = asyncio.new_event_loop()
        running = threading.Thread(target=loop.run_forever)
        async with holder.lock("order"):
            running.start()
            for _ in range(2):
                asyncio.run_coroutine_threadsafe(redlock.lock("order").acquire(), loop)

            async def stands(count: int) -> bool:
                found = (await holder.inspect("order")).waiting
                return found == count and redlock.stats().waiting == 2 * count

            await eventually(lambda: stands(1))
            tasks = await asyncio.to_thread(asyncio.all_tasks, loop)
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(running.join)
            loop.close()
            await eventually(lambda: stands(0))
        for task in tasks:
            assert not task.done()
            task._log_destroy_pending = False  # type: ignore[attr-defined]


async def test_two_loops_may_enter_an_object_for_the_first_time_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enters, entered, may_leave = threading.Event(), threading.Event(), threading.Event()

    class Slow(Bodies):
        def __init__(self) -> None:
            super().__init__()
            if threading.current_thread().name == "first":
                enters.set()
                wait(entered)

    monkeypatch.setattr(aioredlock_ng.lock, "Bodies", Slow)
    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        semaphore = redlock.semaphore("pool", 2)

        async def first() -> None:
            async with semaphore:
                enters.set()

        async def second() -> None:
            await asyncio.to_thread(wait, enters)
            async with semaphore:
                entered.set()
                await asyncio.to_thread(wait, may_leave)

        loops = Loop("first", first), Loop("second", second)
        assert await outcomes(loops[0]) == [None]
        may_leave.set()
        assert await outcomes(*loops) == [None, None]
        assert redlock.leases == ()


async def test_a_block_that_is_entered_while_another_ends_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leaves, entered, has_left = threading.Event(), threading.Event(), threading.Event()

    class Count(int):
        """The number of blocks that are left, compared slowly by the first thread."""

        def __eq__(self, other: object) -> bool:
            is_equal = int(self) == other
            if is_equal and threading.current_thread().name == "first":
                leaves.set()
                wait(entered)
            return is_equal

        __hash__ = int.__hash__

    class Slow(Bodies):
        def __init__(self) -> None:
            super().__init__()
            self._left = Count(0)

    monkeypatch.setattr(aioredlock_ng.lock, "Bodies", Slow)
    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        semaphore = redlock.semaphore("pool", 2)

        async def first() -> None:
            async with semaphore:
                pass
            leaves.set()
            has_left.set()

        async def second() -> None:
            await asyncio.to_thread(wait, leaves)
            async with semaphore:
                entered.set()
                await asyncio.to_thread(wait, has_left)

        assert await outcomes(Loop("first", first), Loop("second", second)) == [None, None]
        assert redlock.leases == ()
