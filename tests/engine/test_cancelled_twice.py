"""A wait that outlasts a cancellation raises the last one, so that none of them is swallowed.

anyio before version 4.16 swallows a cancellation of its scope, even if other code has cancelled the
task later. It finds its own cancellation in the context of another one, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import pytest

if TYPE_CHECKING:
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("way", ["release", "exit", "aclose"])
@pytest.mark.parametrize("first", ["scope", "task"])
async def test_the_last_cancellation_of_the_task_is_raised(rig: Rig, way: str, first: str) -> None:
    process = await rig.process()
    raised: list[asyncio.CancelledError] = []
    went_on = False

    async def end() -> None:
        if way == "exit":
            async with process.lock("a"):
                rig.ways[:] = [0.02] * 3
            return
        lease = await process.lock("a").acquire()
        rig.ways[:] = [0.02] * 3
        await (lease.release() if way == "release" else process.redlock.aclose())

    async def work() -> None:
        nonlocal went_on
        own = asyncio.current_task()
        assert own is not None
        with anyio.CancelScope() as scope:
            loop.call_later(0.01, scope.cancel if first == "scope" else lambda: own.cancel("1"))
            loop.call_later(0.02, own.cancel, "2")
            loop.call_later(0.03, own.cancel, "3")
            try:
                await end()
            except asyncio.CancelledError as error:
                raised.append(error)
                raise
        went_on = True

    loop = asyncio.get_running_loop()
    worker = asyncio.create_task(work())
    await asyncio.wait([worker])
    assert worker.cancelled()
    assert not went_on
    assert [error.args for error in raised] == [("3",)]
    assert raised[0].__context__ is None
    await asyncio.sleep(0.1)
    assert rig.clean
