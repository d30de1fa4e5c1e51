"""An error that a block raised, or noted, keeps no frame of the body once it is handled.

The garbage collector must have nothing to do, because its run may come much later.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import AcquireTimeout, LockLost, LockReleased, QuorumUnreachable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.rig import Process, Rig

pytestmark = pytest.mark.virtual_time


class Order:
    """A local object of a body."""


async def lost(rig: Rig, process: Process) -> None:
    async with process.lock("a"):
        await asyncio.sleep(0.2)
        rig.vacate(b"a")
        await asyncio.sleep(60)


async def lost_without_await(rig: Rig, process: Process) -> None:
    async with process.lock("a"):
        rig.vacate(b"a")


async def found_by_a_call(rig: Rig, process: Process) -> None:
    async with process.lock("a") as lease:
        rig.vacate(b"a")
        await lease.verify()


async def lost_with_an_error(rig: Rig, process: Process) -> None:
    async with process.lock("a"):
        rig.vacate(b"a")
        raise ValueError


async def lost_by_a_leader(rig: Rig, process: Process) -> None:
    async with process.redlock.election("a"):
        await asyncio.sleep(0.2)
        rig.vacate(b"a")
        await asyncio.sleep(60)


async def lost_by_a_leader_that_does_not_rejoin(rig: Rig, process: Process) -> None:
    async def lead(_: object) -> None:
        await asyncio.sleep(0.2)
        rig.vacate(b"a")
        await asyncio.sleep(60)

    await process.redlock.election("a", rejoin=False).run(lead)


async def refused(rig: Rig, process: Process) -> None:
    rig.occupy(b"a", 1.0)
    await process.lock("a", blocking_timeout=0.1).acquire()


async def unreachable(rig: Rig, process: Process) -> None:
    rig.hang(0, 1)
    await process.lock("a", blocking_timeout=0).acquire()


@pytest.mark.parametrize(
    "play",
    [
        lost,
        lost_without_await,
        found_by_a_call,
        lost_with_an_error,
        lost_by_a_leader,
        lost_by_a_leader_that_does_not_rejoin,
        refused,
        unreachable,
    ],
)
async def test_a_handled_error_frees_the_objects_of_the_body_at_once(
    rig: Rig, play: Callable[[Rig, Process], Awaitable[None]]
) -> None:
    process = await rig.process()
    kept: list[weakref.ref[Any]] = []

    async def handle() -> None:
        order = Order()
        kept.append(weakref.ref(order))
        errors = (LockLost, LockReleased, AcquireTimeout, QuorumUnreachable, ValueError)
        with contextlib.suppress(*errors):
            await play(rig, process)
            pytest.fail("nothing was raised")

    gc.collect()
    gc.disable()
    try:
        await asyncio.create_task(handle())
        await asyncio.sleep(1)
        assert kept[0]() is None
    finally:
        gc.enable()
