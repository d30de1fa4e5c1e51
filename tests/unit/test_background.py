"""Background tasks: an exception ends none of them, and a cancellation ends each at once."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from aioredlock_ng._nodes.background import FIRST_PAUSE, LONGEST_PAUSE, supervised
from aioredlock_ng.events import Event, TaskFailed
from tests.support.virtual_loop import VirtualLoop

pytestmark = pytest.mark.virtual_time


def on_a_virtual_loop(body: object) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(body)  # type: ignore[arg-type]
    finally:
        loop.close()


def test_failed_work_begins_again_after_growing_pauses_until_it_returns() -> None:
    heard: list[Event] = []
    words: list[str] = []
    begun: list[float] = []

    async def work() -> None:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) < 10:
            raise ValueError("the reply was s3cr3t")

    async def body() -> None:
        await supervised(work, "work", heard.append, words.append)

    on_a_virtual_loop(body())
    pauses = [later - sooner for sooner, later in pairwise(begun)]
    assert pauses == pytest.approx([min(FIRST_PAUSE * 2**n, LONGEST_PAUSE) for n in range(9)])
    assert [type(event) for event in heard] == [TaskFailed] * 9
    assert all(
        isinstance(event, TaskFailed) and "ValueError in test_background.py" in event.reason
        for event in heard
    )
    assert len(words) == 9
    assert "s3cr3t" not in f"{heard} {words}"


def test_work_that_lasted_begins_again_as_soon_as_after_its_first_failure() -> None:
    heard: list[Event] = []
    lasts = iter([0.0] * 8 + [LONGEST_PAUSE + 1, 0.0])

    async def work() -> None:
        if (lasted := next(lasts, None)) is not None:
            await asyncio.sleep(lasted)
            raise ValueError

    async def body() -> None:
        await supervised(work, "work", heard.append)

    on_a_virtual_loop(body())
    pauses = [event.retry_in for event in heard if isinstance(event, TaskFailed)]
    assert pauses[7:] == [LONGEST_PAUSE, FIRST_PAUSE, 2 * FIRST_PAUSE]


@pytest.mark.parametrize("failed", [False, True], ids=["at work", "in the pause"])
def test_a_cancelled_task_ends_at_once(failed: bool) -> None:
    async def work() -> None:
        if failed:
            raise ValueError
        await asyncio.Event().wait()

    async def body() -> None:
        task = supervised(work, "work", lambda _event: None)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.get_running_loop().time() - began < FIRST_PAUSE

    on_a_virtual_loop(body())
