"""Read-write locks of a manager whose engine has a thread of its own: readers on several loops, and
downgrades.
"""

from __future__ import annotations

import asyncio
import threading

import pytest

from aioredlock_ng import LockHeld, LockLost, Redlock, UpgradeRefused
from aioredlock_ng.testing import MemoryNodes, lose

PATIENCE = 30.0


async def test_readers_on_two_loops_share_a_grant_and_read_again_while_a_writer_waits() -> None:
    """The writer waits for both readers, so a nested read that waited for the writer would never
    end.
    """
    outside, waits, tokens = threading.Barrier(2, timeout=PATIENCE), threading.Event(), set[str]()

    async def read() -> None:
        async with catalog.read() as outer:
            await asyncio.to_thread(outside.wait)
            assert await asyncio.to_thread(waits.wait, PATIENCE)
            async with asyncio.timeout(PATIENCE), catalog.read() as inner:
                assert inner.token == outer.token
                tokens.add(inner.token)
            with pytest.raises(UpgradeRefused, match="this very task reads it"):
                await catalog.write().acquire()
            await asyncio.to_thread(outside.wait)

    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        catalog = redlock.rwlock("catalog")
        other = asyncio.create_task(asyncio.to_thread(asyncio.run, read()))
        here = asyncio.create_task(read())
        while len(redlock.leases) < 2:
            await asyncio.sleep(0.001)
        writer = asyncio.create_task(
            redlock.rwlock("catalog", blocking_timeout=PATIENCE).write().acquire()
        )
        while not redlock.stats().standing:
            await asyncio.sleep(0.001)
        # The nodes tell the process that a writer waits. From then on readers do not share.
        while (late := await catalog.read().try_acquire()) is not None:
            await late.release()
        waits.set()
        await asyncio.wait_for(asyncio.gather(here, other), PATIENCE)
        assert await (await writer).release()
    assert len(tokens) == 1


async def test_a_lease_is_downgraded_from_the_callers_loop() -> None:
    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        catalog = redlock.rwlock("catalog", blocking_timeout=0)
        async with catalog.write() as lease:
            fence = lease.fence
            with pytest.raises(LockHeld):
                await catalog.read().acquire()
            await lease.downgrade()
            assert fence <= lease.fence < fence + 16
            async with catalog.read() as reader:
                assert reader.fence == lease.fence
            with pytest.raises(UpgradeRefused):
                await catalog.write().acquire()
            await lease.downgrade()
        async with catalog.write() as lease:
            assert lease.fence > fence


@pytest.mark.parametrize("begun", [False, True])
async def test_a_downgrade_whose_caller_is_cancelled_goes_on(begun: bool) -> None:
    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        catalog = redlock.rwlock("catalog", blocking_timeout=PATIENCE)
        lease = await catalog.write().acquire()
        assert redlock._threaded is not None
        here, go = redlock._threaded.here, threading.Event()
        assert here is not None
        if not begun:
            here.thread.post(go.wait, PATIENCE)
        downgrading = asyncio.create_task(lease.downgrade())
        await asyncio.sleep(0)
        downgrading.cancel()
        await asyncio.wait([downgrading])
        assert downgrading.cancelled()
        go.set()
        async with catalog.read() as reader:
            assert lease.valid
            assert reader.fence == lease.fence
        with pytest.raises(LockHeld):
            await redlock.lock("catalog", blocking_timeout=0).acquire()
        assert await lease.release()


async def test_a_body_that_downgraded_its_lease_is_cancelled_by_a_loss() -> None:
    async with Redlock(MemoryNodes(3), thread=True) as redlock:
        entered = asyncio.Event()
        leases = []

        async def body() -> None:
            async with redlock.rwlock("catalog").write() as lease:
                await lease.downgrade()
                leases.append(lease)
                entered.set()
                await asyncio.sleep(PATIENCE)

        task = asyncio.create_task(body())
        await entered.wait()
        await lose(leases[0])
        with pytest.raises(LockLost, match="'catalog' was lost"):
            await asyncio.wait_for(task, PATIENCE)
