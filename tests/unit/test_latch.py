"""A latch is set once, and wakes all threads and tasks that wait for it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioredlock_ng._threaded.latch import Latch

PATIENCE = 30.0


def test_a_latch_wakes_every_thread_and_every_task_that_waits() -> None:
    latch: Latch[int] = Latch()
    begun = threading.Barrier(5)

    def wait() -> int:
        begun.wait(PATIENCE)
        return latch.result()

    async def wait_in_a_loop() -> None:
        arrival = latch.arrival()
        begun.wait(PATIENCE)
        await arrival

    with ThreadPoolExecutor(4) as pool:
        threads = [pool.submit(wait) for _ in range(3)]
        loop = pool.submit(lambda: asyncio.run(wait_in_a_loop()))
        begun.wait(PATIENCE)
        latch.set_result(42)
        assert [job.result(PATIENCE) for job in threads] == [42] * 3
        loop.result(PATIENCE)
    assert latch.done()


@pytest.mark.parametrize("error", [None, ValueError("first")])
def test_the_first_outcome_of_a_latch_stays(error: ValueError | None) -> None:
    latch: Latch[str] = Latch()
    if error is None:
        latch.set_result("first")
    else:
        latch.set_exception(error)
    latch.set_result("second")
    latch.set_exception(OSError("third"))
    assert latch.error is error
    if error is None:
        assert latch.result() == "first"
    else:
        with pytest.raises(ValueError, match="first"):
            latch.result()


def test_a_wait_ends_after_its_time_and_a_later_setter_is_not_disturbed() -> None:
    latch: Latch[None] = Latch()
    assert not latch.wait(0.001)
    latch.set_result(None)
    assert latch.wait(0.001)


async def test_a_task_arrives_at_a_latch_that_is_set_already() -> None:
    latch: Latch[None] = Latch()
    latch.set_result(None)
    await asyncio.wait_for(latch.arrival(), PATIENCE)
    await asyncio.wait_for(latch.outlast(), PATIENCE)


async def test_a_task_that_outlasts_its_cancellation_raises_it_after_the_outcome() -> None:
    latch: Latch[None] = Latch()
    task = asyncio.create_task(latch.outlast())
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    latch.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_loop_that_is_closed_before_the_outcome_disturbs_no_setter_and_no_other_waiter() -> None:
    latch: Latch[None] = Latch()

    async def leave() -> None:
        latch.arrival()

    asyncio.run(leave())
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(latch.wait)
        latch.set_result(None)
        assert job.result(PATIENCE)


def test_an_exception_is_not_kept_by_the_frame_that_raised_it() -> None:
    latch: Latch[None] = Latch()
    latch.set_exception(ValueError())
    with pytest.raises(ValueError) as caught:  # noqa: PT011 -- it has no words
        latch.result()
    frame = caught.tb
    while frame.tb_next is not None:
        frame = frame.tb_next
    assert "error" not in frame.tb_frame.f_locals
