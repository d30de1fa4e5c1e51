"""A block in an async generator: its loss reaches the task that reads the generator."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from aioredlock_ng import LockLost, RedlockError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioredlock_ng import Lease, Lock
    from tests.support.rig import Rig

pytestmark = pytest.mark.virtual_time


async def values(lock: Lock) -> AsyncIterator[Lease]:
    async with lock as lease:
        while True:
            yield lease


def reading(lock: Lock) -> Any:
    return contextlib.aclosing(values(lock))


async def test_a_loss_while_the_reader_awaits_is_raised_and_not_only_a_cancellation(
    rig: Rig,
) -> None:
    """The loss cancels the reader, whose `aclose` then ends the block by GeneratorExit."""
    process = await rig.process()

    async def read() -> None:
        async with reading(process.lock("a")) as leases:
            async for _ in leases:
                rig.vacate(b"a")
                await asyncio.sleep(60)

    reader = asyncio.create_task(read())
    await asyncio.wait([reader])
    assert not reader.cancelled()
    assert isinstance(reader.exception(), LockLost)


@pytest.mark.parametrize("on_lost", ["cancel", "flag"])
async def test_a_reader_that_never_awaits_learns_of_the_loss_when_it_closes_the_generator(
    rig: Rig, on_lost: Any
) -> None:
    process = await rig.process(ttl=1.0)
    leases = values(process.lock("a", on_lost=on_lost))
    await anext(leases)
    asyncio.get_running_loop().advance(5)  # type: ignore[attr-defined]
    with pytest.raises(LockLost):
        await leases.aclose()  # type: ignore[attr-defined]
    await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["cancel", "timeout"])
@pytest.mark.parametrize("early", [0.0, 1e-4])
async def test_a_cancellation_of_the_reader_by_other_code_wins_over_the_loss(
    rig: Rig, how: str, early: float
) -> None:
    process = await rig.process(ttl=1.0)
    loop = asyncio.get_running_loop()

    async def read() -> None:
        async with asyncio.timeout(None) as timeout, reading(process.lock("a")) as leases:
            async for lease in leases:
                rig.hang(0, 1, 2)
                end = loop.time() + lease.remaining() - early
                if how == "timeout":
                    timeout.reschedule(end)
                else:
                    loop.call_at(end, reader.cancel)
                try:
                    await asyncio.sleep(60)
                finally:
                    loop.advance(1)  # type: ignore[attr-defined]

    reader = asyncio.create_task(read())
    await asyncio.wait([reader])
    assert process.redlock.stats().lost == 1
    if how == "timeout":
        assert isinstance(reader.exception(), TimeoutError)
    else:
        assert reader.cancelled()


async def test_a_closed_generator_releases_without_an_error(rig: Rig) -> None:
    process = await rig.process()
    async with reading(process.lock("a")) as leases:
        async for lease in leases:
            assert lease.valid
            break
    await asyncio.sleep(0.01)
    assert rig.clean


async def test_a_generator_closed_by_another_task_reports_that_nothing_was_released(
    rig: Rig,
) -> None:
    process = await rig.process()
    slots = process.redlock.semaphore("a", 2)
    leases = values(slots)
    await asyncio.create_task(anext(leases))  # type: ignore[arg-type]
    again = contextlib.AsyncExitStack()
    await asyncio.create_task(again.enter_async_context(slots))
    with pytest.raises(RedlockError, match="nothing was released"):
        await leases.aclose()  # type: ignore[attr-defined]
    await again.aclose()
