"""Loops that stand still or were closed, on virtual time: who loses its leases, and when."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng._threaded.mailbox import Mailbox
from aioredlock_ng._threaded.stalls import Stalls
from tests.support.same_loop import SameLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng import Lease
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time

LIMIT = 4.0


class Loop:
    """An event loop that runs only when it is told to."""

    def __init__(self) -> None:
        self.closed = False
        self._ready: list[Callable[[], object]] = []

    def is_closed(self) -> bool:
        return self.closed

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        if self.closed:
            raise RuntimeError("Event loop is closed")
        self._ready.append(callback)

    def tick(self) -> None:
        ready, self._ready = self._ready, []
        for callback in ready:
            callback()


async def held(rig: Rig, limit: float | None, loop: Loop) -> Lease:
    """Return a lease whose holder lives on this loop."""
    process = await rig.process(ttl=1.0, thread=False)
    lease = await process.lock("a").acquire()
    engine: Any = process.redlock.engine()
    (record,) = engine.extender.leases
    record.home = Mailbox(loop)  # type: ignore[arg-type]
    Stalls(engine, SameLoop(), limit)
    return lease


async def test_a_loop_loses_its_leases_after_the_limit_and_not_before(rig: Rig) -> None:
    lease = await held(rig, LIMIT, Loop())
    await asyncio.sleep(LIMIT)
    lease.check()
    # A look in each second asks, and the fourth one behind it gives up.
    await asyncio.sleep(LIMIT / 4 + 0.01)
    assert lease.lost
    assert "stood still for 4.0 s" in str(lease.lost_error())
    assert not rig.clean, "the keys are left to expire, because the body may still work"
    await asyncio.sleep(1.5)
    assert rig.clean


async def test_a_slow_loop_keeps_its_leases(rig: Rig) -> None:
    loop = Loop()
    lease = await held(rig, LIMIT, loop)
    for _ in range(10):
        await asyncio.sleep(LIMIT * 0.9)
        loop.tick()
        lease.check()


async def test_a_standstill_of_the_whole_process_is_no_standstill_of_the_loop(rig: Rig) -> None:
    loop = Loop()
    lease = await held(rig, LIMIT, loop)
    await asyncio.sleep(1.5)
    # The lease must survive the standstill itself.
    await lease.extend(60.0)
    asyncio.get_running_loop().advance(3 * LIMIT)  # type: ignore[attr-defined]
    await asyncio.sleep(0.1)
    lease.check()
    loop.tick()
    await asyncio.sleep(LIMIT)
    loop.tick()
    lease.check()


@pytest.mark.parametrize("limit", [None, LIMIT])
async def test_a_closed_loop_loses_its_leases_at_the_next_check(
    rig: Rig, limit: float | None
) -> None:
    loop = Loop()
    lease = await held(rig, limit, loop)
    loop.closed = True
    await asyncio.sleep(1.01)
    assert lease.lost
    assert "event loop of its holder was closed" in str(lease.lost_error())


async def test_without_a_limit_no_standstill_is_too_long(rig: Rig) -> None:
    lease = await held(rig, None, Loop())
    await asyncio.sleep(1000)
    lease.check()
