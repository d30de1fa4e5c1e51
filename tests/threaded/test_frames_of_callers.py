"""An error that comes from the engine's thread keeps no frame of its caller once it is handled.

The garbage collector must have nothing to do, because its run may come much later.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

import aioredlock_ng
import aioredlock_ng.sync
from aioredlock_ng import LockHeld
from aioredlock_ng.testing import MemoryNodes
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

import pytest


class Order:
    """A local object of a caller."""


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_an_error_raised_in_a_task_keeps_no_object_of_the_task() -> None:
    kept: list[weakref.ref[Order]] = []
    async with aioredlock_ng.Redlock(MemoryNodes(3), thread=True) as redlock:

        async def work() -> None:
            order = Order()
            kept.append(weakref.ref(order))
            with suppress(LockHeld):
                await redlock.lock("a", blocking_timeout=0).acquire()
                pytest.fail("nothing was raised")

        async with redlock.lock("a"):
            await asyncio.create_task(work())
            # The engine's thread drops its references a moment later.
            await eventually(lambda: kept[0]() is None)


async def test_an_error_raised_in_a_thread_keeps_no_object_of_the_thread() -> None:
    kept: list[weakref.ref[Order]] = []
    with aioredlock_ng.sync.Redlock(MemoryNodes(3)) as redlock:

        def work() -> None:
            order = Order()
            kept.append(weakref.ref(order))
            with suppress(LockHeld):
                redlock.lock("a", blocking_timeout=0).acquire()
                pytest.fail("nothing was raised")

        with redlock.lock("a"):
            work()
            await eventually(lambda: kept[0]() is None)
